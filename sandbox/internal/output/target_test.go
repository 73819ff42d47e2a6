package output

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/progress"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/rawfile"
	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// newProgress returns a function that opens the same progress like the next shim.
func newProgress(t *testing.T) (open func() *progress.Output) {
	t.Helper()
	set, err := progress.Create()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(set.Close)
	return func() *progress.Output {
		t.Helper()
		again, err := set.Duplicate()
		if err != nil {
			t.Fatal(err)
		}
		r, err := progress.Open(again)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		return r.Output(progress.Stdout)
	}
}

func hostPipe(t *testing.T) (r *os.File, w *rawfile.File) {
	t.Helper()
	r, file, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	t.Cleanup(func() { r.Close() })
	if w, err = rawfile.New(file, rawfile.ForWrite); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return r, w
}

func connect(t *testing.T, target *Target, f *rawfile.File, p *progress.Output) {
	t.Helper()
	if err := target.Connect(f, p); err != nil {
		t.Fatal(err)
	}
}

func expectOffset(t *testing.T, p *progress.Output, want int64) {
	t.Helper()
	if got := p.Offset(); got != want {
		t.Errorf("stored offset: got %d, want %d", got, want)
	}
}

func TestTarget(t *testing.T) {
	target := NewTarget()
	again := newProgress(t)
	r, w := hostPipe(t)
	wrote := make(chan error, 1)
	go func() {
		_, err := target.Write(t.Context(), 0, []byte("waits"))
		wrote <- err
	}()
	connect(t, target, w, again())
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	// The agent repeats after a cut.
	if at, err := target.Write(t.Context(), 2, []byte("its again")); at != 11 || err != nil {
		t.Errorf("Write: got %d, %v", at, err)
	}
	if at, err := target.Write(t.Context(), 3, []byte("ts")); at != 11 || err != nil {
		t.Errorf("Write of old bytes: got %d, %v", at, err)
	}
	if _, err := target.Write(t.Context(), 12, []byte("x")); !errors.Is(err, logs.ErrGap) {
		t.Errorf("Write after a gap: got %v", err)
	}
	if at, err := target.End(t.Context()); at != 11 || err != nil {
		t.Errorf("End: got %d, %v", at, err)
	}
	expectOffset(t, again(), 11)
	<-target.Disconnect()
	<-target.Disconnect()
	w.Close()
	if got, err := io.ReadAll(r); string(got) != "waits again" || err != nil {
		t.Errorf("the pipe has %q, %v", got, err)
	}

	// Another surrogate of the same shim, with a record of its own.
	again = newProgress(t)
	_, w = hostPipe(t)
	connect(t, target, w, again())
	expectOffset(t, again(), 11)
	if at, err := target.Write(t.Context(), 11, []byte("!")); at != 12 || err != nil {
		t.Errorf("Write: got %d, %v", at, err)
	}
	// The next shim.
	next := NewTarget()
	connect(t, next, nil, again())
	if next.Offset() != 12 {
		t.Errorf("Offset: got %d, want 12", next.Offset())
	}
	<-next.Disconnect()
	<-target.Disconnect()
}

// TestTargetWithoutReader: the error stays until another file is connected, and Discard drops the output.
func TestTargetWithoutReader(t *testing.T) {
	target := NewTarget()
	again := newProgress(t)
	r, w := hostPipe(t)
	r.Close()
	connect(t, target, w, again())
	for range 2 {
		if at, err := target.Write(t.Context(), 0, []byte("x")); at != 0 || !errors.Is(err, ErrNoReader) || !errors.Is(err, unix.EPIPE) {
			t.Errorf("Write: got %d, %v", at, err)
		}
	}
	<-target.Disconnect()
	connect(t, target, nil, again())
	if at, err := target.Write(t.Context(), 0, []byte("x")); at != 1 || err != nil {
		t.Errorf("Write without a file: got %d, %v", at, err)
	}
	<-target.Disconnect()
	target.Discard()
	if at, err := target.Write(t.Context(), 1, []byte("xyz")); at != 4 || err != nil {
		t.Errorf("Write after Discard: got %d, %v", at, err)
	}
}

// TestTargetIsStuck: a system call that hangs ends neither Write's wait nor a disconnection, and a later file gets its
// bytes again.
func TestTargetIsStuck(t *testing.T) {
	target := NewTarget()
	again := newProgress(t)
	r, w := fullPipe(t)
	connect(t, target, w, again())
	ctx, cancel := context.WithCancel(t.Context())
	wrote := make(chan error, 2)
	write := func(ctx context.Context) {
		_, err := target.Write(ctx, 0, []byte("text"))
		wrote <- err
	}
	go write(ctx)
	for !target.Busy() {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-wrote; !errors.Is(err, context.Canceled) {
		t.Errorf("Write: got %v", err)
	}
	done := target.Disconnect()
	w.Close()
	<-done // this write can be interrupted
	if target.Busy() {
		t.Error("busy without a file")
	}
	go write(t.Context())
	r2, w2 := hostPipe(t)
	connect(t, target, w2, again())
	if err := <-wrote; err != nil {
		t.Errorf("Write to the next file: got %v", err)
	}
	<-target.Disconnect()
	w2.Close()
	if got, err := io.ReadAll(r2); string(got) != "text" || err != nil {
		t.Errorf("the next file has %q, %v", got, err)
	}
	if got, err := io.ReadAll(r); bytes.Contains(got, []byte("text")) || err != nil {
		t.Errorf("the first file has the text, %v", err)
	}
}

// fullPipe returns a pipe without room.
func fullPipe(t *testing.T) (r *os.File, w *rawfile.File) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = unix.Write(fds[1], make([]byte, rawfile.Piece))
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(fds[1]), "full")
	defer file.Close()
	if w, err = rawfile.New(file, rawfile.ForWrite); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	r = os.NewFile(uintptr(fds[0]), "full")
	t.Cleanup(func() { r.Close() })
	return r, w
}

// TestRunOnTarget: the pump continues after a cut, and closes the stream in the guest if it has no reader.
func TestRunOnTarget(t *testing.T) {
	for name, tc := range map[string]struct {
		reader  bool
		answers []answer
		want    string
		closed  bool
	}{
		"read":      {reader: true, answers: []answer{{chunks: []string{"ab"}}, {at: 2, chunks: []string{"c", ""}}}, want: "abc"},
		"no reader": {answers: []answer{{chunks: []string{"ab", ""}}}, closed: true},
	} {
		t.Run(name, func(t *testing.T) {
			script := &script{t: t, answers: tc.answers}
			target := NewTarget()
			again := newProgress(t)
			r, w := hostPipe(t)
			if !tc.reader {
				r.Close()
			}
			connect(t, target, w, again())
			pump := &Pump{
				Agent: agentv1.NewClient(script.open), Ended: make(chan struct{}), Hub: NewHub(), Target: target, Resumed: true,
				Logger: slog.New(slog.DiscardHandler),
			}
			pump.Run(t.Context())
			script.serving.Wait()
			<-target.Disconnect()
			w.Close()
			if tc.reader {
				if got, err := io.ReadAll(r); string(got) != tc.want || err != nil {
					t.Errorf("the file has %q, %v", got, err)
				}
			}
			if script.closed != tc.closed {
				t.Errorf("the guest's stream was closed: %v", script.closed)
			}
		})
	}
}
