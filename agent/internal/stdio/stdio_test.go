package stdio_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/agent/internal/stdio"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

func pipe(t *testing.T) (*os.File, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(10*time.Second))
	t.Cleanup(cancel)
	return ctx
}

// TestOutput reads in odd sizes, and repeatedly from the last acknowledged byte: no byte is lost or repeated.
func TestOutput(t *testing.T) {
	t.Parallel()
	r, w := pipe(t)
	o := stdio.NewOutput(r)
	want := make([]byte, 3<<20)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	go func() {
		w.Write(want)
		w.Close()
	}()
	var got []byte
	var acked int
	for done := false; !done; {
		rd := o.Reader(int64(len(got)))
		acked = len(got)
		if rd.Offset() != int64(len(got)) {
			t.Fatalf("offset %d, want %d", rd.Offset(), len(got))
		}
		for range 1 + rand.IntN(20) {
			buf := make([]byte, 1+rand.IntN(60000))
			n, err := rd.Next(within(t), buf)
			got = append(got, buf[:n]...)
			if errors.Is(err, io.EOF) {
				done = true
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			// The buffer is bounded: otherwise the writer would block forever.
			if rand.IntN(2) == 0 || len(got)-acked > stdio.Limit/2 {
				acked = len(got)
				rd.Ack(int64(acked))
			}
		}
	}
	if !bytes.Equal(got, want) {
		t.Errorf("got %d bytes, want %d, or others", len(got), len(want))
	}
	// Unacknowledged bytes can be read again.
	rd := o.Reader(0)
	rest, _ := io.ReadAll(readerFunc(func(p []byte) (int, error) { return rd.Next(within(t), p) }))
	if !bytes.Equal(rest, want[len(want)-len(rest):]) {
		t.Error("what was kept differs")
	}
}

// TestOutputOfATerminal: output after a reported end of the terminal is read.
func TestOutputOfATerminal(t *testing.T) {
	t.Parallel()
	for name, reads := range map[string][]string{
		"as it should be":  {"over\r\n", "", ""},
		"the end too soon": {"over", "", "\r\n", ""},
	} {
		o := stdio.NewOutput(io.NopCloser(readerFunc(func(p []byte) (int, error) {
			next := reads[0]
			if reads = reads[1:]; next == "" {
				return 0, &os.PathError{Op: "read", Path: "ptmx", Err: syscall.EIO}
			}
			return copy(p, next), nil
		})))
		var got []byte
		var err error
		for rd := o.Reader(0); err == nil; {
			var n int
			buf := make([]byte, 100)
			n, err = rd.Next(within(t), buf)
			got = append(got, buf[:n]...)
		}
		if string(got) != "over\r\n" || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestHangup: all output is read, and then remaining holders lose the terminal.
func TestHangup(t *testing.T) {
	t.Parallel()
	r, w := pipe(t)
	o := stdio.NewOutput(r)
	want := bytes.Repeat([]byte("x"), stdio.Limit/2)
	if _, err := w.Write(want[:1000]); err != nil {
		t.Fatal(err)
	}
	o.Hangup()
	if _, err := w.Write(want[1000:]); err != nil {
		t.Fatal(err)
	}
	var got []byte
	var err error
	for rd, buf := o.Reader(0), make([]byte, 1<<16); err == nil; {
		var n int
		n, err = rd.Next(within(t), buf)
		got = append(got, buf[:n]...)
	}
	if !bytes.Equal(got, want) || !errors.Is(err, io.EOF) {
		t.Errorf("%d bytes of %d, %v", len(got), len(want), err)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write after that: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestOutputBlocks wants a writer to wait for acknowledgements.
func TestOutputBlocks(t *testing.T) {
	t.Parallel()
	r, w := pipe(t)
	o := stdio.NewOutput(r)
	w.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
	n, err := w.Write(make([]byte, 2*stdio.Limit))
	if !errors.Is(err, os.ErrDeadlineExceeded) || n < stdio.Limit || n > stdio.Limit+100<<10 {
		t.Fatalf("wrote %d bytes, %v", n, err)
	}
	rd := o.Reader(0)
	rd.Ack(1 << 40) // more than it has read
	ctx, cancel := context.WithCancel(context.Background())
	buf := make([]byte, stdio.Limit)
	if n, err := rd.Next(ctx, buf); n != stdio.Limit || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := rd.Next(ctx, buf); !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}
	newer := o.Reader(0)
	if _, err := rd.Next(within(t), buf); !errors.Is(err, stdio.ErrReplaced) {
		t.Errorf("older reader: %v", err)
	}
	o.Close()
	if _, err := newer.Next(within(t), buf); err == nil {
		t.Error("a closed stream can be read")
	}
}

// TestOutputThatNobodyWants: Close ends the output although a child of the ended process holds the other end open.
func TestOutputThatNobodyWants(t *testing.T) {
	r, w := pipe(t)
	o := stdio.NewOutput(r)
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	next := make([]byte, 1)
	if _, err := o.Reader(0).Next(t.Context(), next); err != nil {
		t.Fatal(err)
	}
	o.Close()
	if _, err := r.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the pipe is still open: %v", err)
	}
}

// TestNoReader: the process's writes fail, also one that is blocked, and readers get the end of the stream.
func TestNoReader(t *testing.T) {
	t.Parallel()
	r, w := pipe(t)
	o := stdio.NewOutput(r)
	wrote := make(chan error, 1)
	go func() {
		_, err := w.Write(make([]byte, 2*stdio.Limit))
		wrote <- err
	}()
	before := o.Reader(0)
	if n, err := before.Next(within(t), make([]byte, 1)); n != 1 || err != nil {
		t.Fatalf("Next: got %d, %v", n, err)
	}
	o.NoReader()
	o.NoReader()
	if err := <-wrote; !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write: got %v, want EPIPE", err)
	}
	if n, err := before.Next(within(t), make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Next: got %d, %v, want EOF", n, err)
	}
	if n, err := o.Reader(1).Next(within(t), make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("Next of a new reader: got %d, %v, want EOF", n, err)
	}
	o.Close()
}

// TestInput replaces a writer that is stuck.
func TestInput(t *testing.T) {
	t.Parallel()
	r, w := pipe(t)
	in := stdio.NewInput(w, nil)
	first, offset := in.Acquire()
	if offset != 0 {
		t.Errorf("offset %d", offset)
	}
	stuck := make(chan error, 1)
	go func() {
		_, err := in.Write(first, make([]byte, 1<<20))
		stuck <- err
	}()
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil { // the write has started
		t.Fatal(err)
	}
	second, offset := in.Acquire()
	if offset == 0 || offset >= 1<<20 {
		t.Errorf("offset %d", offset)
	}
	if err := <-stuck; !errors.Is(err, stdio.ErrReplaced) {
		t.Errorf("the older: %v", err)
	}
	if err := in.SendEOF(first); !errors.Is(err, stdio.ErrReplaced) {
		t.Errorf("the older ends: %v", err)
	}
	all := make(chan int)
	go func() {
		b, _ := io.ReadAll(r)
		all <- len(b)
	}()
	if n, err := in.Write(second, []byte("more")); err != nil || n != offset+4 {
		t.Errorf("write: %d, %v", n, err)
	}
	if err := in.SendEOF(second); err != nil {
		t.Error(err)
	}
	if n := 1 + <-all; int64(n) != offset+4 {
		t.Errorf("the process read %d bytes of %d", n, offset+4)
	}
	if _, err := in.Write(second, []byte("x")); err == nil {
		t.Error("write after the end")
	}
}
