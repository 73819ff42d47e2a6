package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/input"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/output"
)

func (h *harness) exec(id string, stdin bool) Process {
	h.t.Helper()
	p := Process{Container: "c", Exec: id}
	in := containerv1.NoStdin
	if stdin {
		in = containerv1.OpenStdin
	}
	h.must(h.box.CreateExec(h.ctx, ExecConfig{Process: p, Spec: []byte(`{}`), Stdio: containerv1.Stream{Stdin: in}}))
	return p
}

func (h *harness) attach(p Process, c Streams) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := h.box.Attach(h.ctx, p, c)
		done <- err
	}()
	return done
}

// attached waits for the first client of a process's output.
func (h *harness) attached(id Process) {
	h.t.Helper()
	h.box.processes.mu.Lock()
	p, err := h.box.find(id)
	h.box.processes.mu.Unlock()
	h.must(err)
	select {
	case <-p.attached:
	case <-h.ctx.Done():
		h.t.Fatal(context.Cause(h.ctx))
	}
}

func TestExecAttachedBeforeStartMissesNothing(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	id := h.exec("e1", true)
	out, errs := newBuffer(), newBuffer()
	r, w := io.Pipe()
	done := h.attach(id, Streams{Stdin: r, Stdout: out, Stderr: errs})
	pid, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	if pid != 9 {
		t.Errorf("pid %d", pid)
	}
	p := h.fake(id)
	_, err = io.WriteString(w, "question")
	h.must(err)
	h.must(p.until(h.ctx, func() bool { return string(p.input) == "question" }))
	w.Close()
	h.must(p.until(h.ctx, func() bool { return p.inEOF }))
	h.write(p, "stdout", "answer")
	h.write(p, "stderr", "trouble")
	p.finish(exited(0))
	h.must(<-done)
	if out.String() != "answer" || errs.String() != "trouble" {
		t.Errorf("got %q and %q", out, errs)
	}
	if got := h.wait(id); got.Code != 0 || got.Reason != ReasonCompleted {
		t.Errorf("exit %+v", got)
	}
	_, err = h.box.DeleteProcess(h.ctx, id)
	h.must(err)
}

// TestClientOfStdinAlone: output waits for a client that reads; a client that only feeds the process does not count.
func TestClientOfStdinAlone(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{"stdout", "stderr"} {
		h := running(t)
		h.started("c")
		id := h.exec("e1", true)
		r, w := io.Pipe()
		fed := h.attach(id, Streams{Stdin: r})
		_, err := h.box.StartProcess(h.ctx, id)
		h.must(err)
		p := h.fake(id)
		_, err = io.WriteString(w, "x")
		h.must(err)
		h.must(p.until(h.ctx, func() bool { return string(p.input) == "x" }))
		h.box.processes.mu.Lock()
		attached := h.box.all[id].attached
		h.box.processes.mu.Unlock()
		select {
		case <-attached:
			t.Error("the output was read without a client")
		default:
		}
		h.write(p, stream, "early")
		out := newBuffer()
		c := Streams{Stdout: out}
		if stream == "stderr" {
			c = Streams{Stderr: out}
		}
		read := h.attach(id, c)
		out.until(h, "early")
		w.Close()
		p.finish(exited(0))
		h.must(<-read)
		h.must(<-fed)
	}
}

// TestExecOutputIsHeldBack: the client of an exec'd process controls the flow of its output end to end, and every
// buffer is bounded.
func TestExecOutputIsHeldBack(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	id := h.exec("e1", false)
	_, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	p := h.fake(id)
	// Without a client no output is read.
	h.write(p, "stdout", strings.Repeat("x", outputBound))
	r, w := io.Pipe()
	done := h.attach(id, Streams{Stdout: w})
	const total = 4 << 20
	wrote := make(chan error, 1)
	go func() {
		for range total / 65536 {
			if err := p.write(h.ctx, "stdout", make([]byte, 65536)); err != nil {
				wrote <- err
				return
			}
		}
		p.finish(exited(0))
		wrote <- nil
	}()
	select {
	case err := <-wrote:
		t.Fatalf("the process wrote %d unread bytes: %v", total, err)
	case <-time.After(1500 * time.Millisecond): // longer than the patience with a client of a log
	}
	got := make(chan int64, 1)
	go func() { n, _ := io.Copy(io.Discard, r); got <- n }()
	h.must(<-wrote)
	h.must(<-done)
	w.Close()
	if n := <-got; n != total+outputBound {
		t.Errorf("client has %d bytes of %d", n, total+outputBound)
	}
}

// TestInputIsHeldBack: the host keeps a bounded amount of input that the guest does not acknowledge.
func TestInputIsHeldBack(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	id := h.exec("e1", true)
	in, w := io.Pipe()
	done := h.attach(id, Streams{Stdin: in, Stdout: newBuffer()})
	_, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	p := h.fake(id)
	p.update(func() { p.noAcks = true })
	var taken atomic.Int64
	go func() {
		chunk := make([]byte, 64<<10)
		for {
			n, err := w.Write(chunk)
			taken.Add(int64(n))
			if err != nil {
				return
			}
		}
	}()
	h.must(p.until(h.ctx, func() bool { return len(p.input) > input.MaxUnacked }))
	time.Sleep(300 * time.Millisecond)
	if n := taken.Load(); n > input.MaxUnacked+256<<10 {
		t.Errorf("%d unacknowledged bytes were read", n)
	}
	p.finish(exited(0))
	h.wait(id)
	w.Close()
	<-done
}

func TestClientThatLeavesDoesNotBlockTheProcess(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	id := h.exec("e1", true)
	ctx, cancel := context.WithCancel(h.ctx)
	out := newBuffer()
	in, _ := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := h.box.Attach(ctx, id, Streams{Stdin: in, Stdout: out})
		done <- err
	}()
	_, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	p := h.fake(id)
	h.write(p, "stdout", "a")
	out.until(h, "a")
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("attach: %v", err)
	}
	h.must(p.until(h.ctx, func() bool { return p.inEOF })) // its stdin ends with the client
	h.write(p, "stdout", strings.Repeat("x", 4*outputBound))
	p.finish(exited(0))
	h.wait(id)
}

// TestAttachReturnsTheExitOfADeletedProcess: a client can read the last output after the process was deleted.
func TestAttachReturnsTheExitOfADeletedProcess(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	id := h.exec("e1", false)
	r, w := io.Pipe()
	type result struct {
		exit Exit
		err  error
	}
	done := make(chan result, 1)
	go func() {
		exit, err := h.box.Attach(h.ctx, id, Streams{Stdout: w})
		done <- result{exit, err}
		w.Close()
	}()
	h.attached(id)
	_, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	p := h.fake(id)
	h.write(p, "stdout", "last words")
	p.finish(exited(3))
	h.wait(id)
	_, err = h.box.DeleteProcess(h.ctx, id)
	h.must(err)
	if got, err := io.ReadAll(io.LimitReader(r, 10)); string(got) != "last words" {
		t.Errorf("read %q, %v", got, err)
	}
	if got := <-done; got.err != nil || got.exit.Code != 3 {
		t.Errorf("attached to: %+v, %v", got.exit, got.err)
	}
}

// TestAttachWaitsForACommand: a command that has closed its output keeps its input, and Attach returns its exit,
// however long that takes. For a container without writers, Attach returns an error.
func TestAttachWaitsForACommand(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.box.patience = 20 * time.Millisecond
	silence := func(p *fakeProc) {
		p.update(func() {
			for _, s := range p.out {
				s.ended = true
			}
		})
	}
	c := h.started("c")
	id := h.exec("e1", true)
	r, w := io.Pipe()
	done := make(chan Exit, 1)
	go func() {
		exit, err := h.box.Attach(h.ctx, id, Streams{Stdin: r, Stdout: io.Discard, Stderr: io.Discard})
		if err != nil {
			t.Error(err)
		}
		done <- exit
	}()
	_, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	p := h.fake(id)
	silence(p)
	silence(c)
	if _, err := h.box.Attach(h.ctx, Process{Container: "c"}, Streams{Stdout: io.Discard}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("attached to the container: %v", err)
	}
	for range 2 { // also notices input after the end of the output
		if _, err := io.WriteString(w, "input"); err != nil {
			t.Fatal(err)
		}
	}
	h.must(w.Close())
	h.must(p.until(h.ctx, func() bool { return p.inEOF }))
	if string(p.input) != "inputinput" {
		t.Errorf("the command read %q", p.input)
	}
	p.finish(exited(3))
	if exit := <-done; exit.Code != 3 {
		t.Errorf("exit %+v", exit)
	}
}

func TestAttachToAContainer(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.must(h.box.CreateContainer(h.ctx, h.container("c")))
	id := Process{Container: "c"}
	a, b := newBuffer(), newBuffer()
	first := h.attach(id, Streams{Stdout: a})
	second := h.attach(id, Streams{Stdout: b})
	for joined := 0; joined < 2; time.Sleep(time.Millisecond) {
		joined = h.box.all[id].out[0].Clients()
	}
	_, err := h.box.StartProcess(h.ctx, id)
	h.must(err)
	p := h.fake(id)
	h.write(p, "stdout", "prompt> ") // not in the log yet, but visible to clients
	a.until(h, "prompt> ")
	b.until(h, "prompt> ")
	// Only one client may feed the stdin.
	r, w := io.Pipe()
	third := h.attach(id, Streams{Stdin: r})
	_, err = io.WriteString(w, "x")
	h.must(err)
	if _, err := h.box.Attach(h.ctx, id, Streams{Stdin: strings.NewReader("y")}); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("second stdin: %v", err)
	}
	w.Close()
	if p.until(h.ctx, func() bool { return string(p.input) == "x" }); p.inEOF {
		t.Error("a container's stdin was closed by its client's end")
	}
	h.must(h.box.CloseInput(h.ctx, id))
	h.must(p.until(h.ctx, func() bool { return p.inEOF }))
	p.finish(exited(0))
	for _, done := range []<-chan error{first, second, third} {
		h.must(<-done)
	}
	if diff := cmp.Diff([]string{"stdout P prompt> "}, h.logged("c")); diff == "" {
		return
	}
	h.wait(id)
	if diff := cmp.Diff([]string{"stdout P prompt> "}, h.logged("c")); diff != "" {
		t.Error(diff)
	}
}

// TestSlowClientIsDetached: a slow client of a container with a log is detached; the container continues.
func TestSlowClientIsDetached(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.started("c")
	id := Process{Container: "c"}
	stuck, release := make(chan struct{}), make(chan struct{})
	done := h.attach(id, Streams{Stdout: writerFunc(func(b []byte) (int, error) {
		select {
		case <-stuck:
		default:
			close(stuck)
		}
		<-release
		return len(b), nil
	})})
	h.attached(id)
	line := strings.Repeat("x", 1023) + "\n"
	h.write(p, "stdout", strings.Repeat(line, 2048))
	<-stuck
	p.finish(exited(0))
	if exit := h.wait(id); exit.Code != 0 {
		t.Errorf("exit %+v", exit)
	}
	if n := len(h.logged("c")); n != 2048 {
		t.Errorf("%d lines in the log", n)
	}
	close(release)
	if err := <-done; !errors.Is(err, output.ErrSlowClient) {
		t.Errorf("attach: %v", err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// TestChannelIsCut: after a cut of the channel, output is in the log once, and input reaches the process once.
func TestChannelIsCut(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.started("c")
	id := Process{Container: "c"}
	r, w := io.Pipe()
	out := newBuffer()
	done := h.attach(id, Streams{Stdin: r, Stdout: out})
	h.box.processes.mu.Lock()
	attached := h.box.all[id].attached
	h.box.processes.mu.Unlock()
	select {
	case <-attached: // earlier output is not for the client
	case <-h.ctx.Done():
		t.Fatal("not attached")
	}
	var want []string
	var sent string
	for i := range 4 {
		text := strings.Repeat(string(rune('a'+i)), 5000)
		h.write(p, "stdout", text+"\n"+text[:10])
		_, err := io.WriteString(w, text)
		h.must(err)
		sent += text
		h.vm().cut()
		h.write(p, "stdout", "\n")
		want = append(want, "stdout F "+text, "stdout F "+text[:10])
		h.must(p.until(h.ctx, func() bool { return string(p.input) == sent }))
	}
	p.finish(exited(7))
	h.must(<-done)
	if got := h.wait(id); got.Code != 7 {
		t.Errorf("exit %+v", got)
	}
	if diff := cmp.Diff(want, h.logged("c")); diff != "" {
		t.Error(diff)
	}
	var live []string
	for line := range strings.Lines(out.String()) {
		live = append(live, "stdout F "+strings.TrimSuffix(line, "\n"))
	}
	if diff := cmp.Diff(want, live); diff != "" {
		t.Errorf("the client's copy: %s", diff)
	}
}

func TestLogsAreReopened(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.started("c")
	h.write(p, "stdout", "one\n")
	h.must(p.until(h.ctx, func() bool { return p.out["stdout"].acked == 4 }))
	h.must(h.box.ReopenLog(h.ctx, "c", h.openLog("c.1")))
	h.write(p, "stdout", "two\n")
	p.finish(exited(0))
	h.wait(Process{Container: "c"})
	if diff := cmp.Diff([]string{"stdout F one"}, h.logged("c")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"stdout F two"}, h.logged("c.1")); diff != "" {
		t.Error(diff)
	}
	if err := h.box.ReopenLog(h.ctx, "none", h.openLog("x")); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("log of a missing container: %v", err)
	}
}

// TestFullLogHoldsTheContainerUp: a full log blocks the container until it is rotated, also under the next shim. No
// output is lost, and the file stays within its bound.
func TestFullLogHoldsTheContainerUp(t *testing.T) {
	t.Parallel()
	const limit, lines = 1 << 20, 100_000
	h := newHarness(t)
	config := h.config()
	config.LogBytes = limit
	h.must(h.box.Create(h.ctx, config, Files{Scratch: h.scratch()}))
	h.must(h.box.Start(h.ctx))
	p := h.started("c")
	wrote := make(chan error, 1)
	go func() { // "yes ''": each byte becomes a line of 43 bytes
		wrote <- p.write(h.ctx, "stdout", bytes.Repeat([]byte("\n"), lines))
	}()
	stuck := func(id string) {
		t.Helper()
		h.must(p.until(h.ctx, func() bool { return len(p.out["stdout"].data) == outputBound }))
		size := func() int64 {
			info, err := os.Stat(h.logPath(id))
			h.must(err)
			return info.Size()
		}
		for before := int64(0); h.ctx.Err() == nil && (before < limit/4 || before != size()); time.Sleep(50 * time.Millisecond) {
			before = size()
		}
		if n := size(); n > limit || n < limit/4 {
			t.Errorf("a full log of %d bytes, limit %d", n, limit)
		}
	}
	stuck("c")
	select {
	case err := <-wrote:
		t.Fatalf("the container does not wait: %v", err)
	default:
	}
	h.crash()
	h.must(h.restore(h.logFiles("c")))
	stuck("c")
	go func() {
		if <-wrote == nil {
			p.finish(exited(0))
		}
	}()
	ids := []string{"c"}
	for ended := false; !ended; {
		ids = append(ids, fmt.Sprintf("c.%d", len(ids)))
		h.must(h.box.ReopenLog(h.ctx, "c", h.openLog(ids[len(ids)-1])))
		select {
		case <-h.done("c"):
			ended = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	total := 0
	for _, id := range ids {
		total += len(h.logged(id))
	}
	if total != lines {
		t.Errorf("%d lines of %d are logged", total, lines)
	}
}

// done returns a channel that is closed when the container has ended.
func (h *harness) done(id string) <-chan struct{} {
	h.box.processes.mu.Lock()
	defer h.box.processes.mu.Unlock()
	return h.box.all[Process{Container: id}].done
}

func TestExecOfMissingCommand(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	id := h.exec("e1", false)
	h.agent.refuse(agentv1.OpExec, agentv1.ErrNoCommand)
	out := newBuffer()
	done := h.attach(id, Streams{Stdout: out})
	if _, err := h.box.StartProcess(h.ctx, id); !errors.Is(err, agentv1.ErrNoCommand) {
		t.Errorf("start: %v", err)
	}
	h.must(<-done)
	if got := h.wait(id); got.Code != 127 {
		t.Errorf("exit %+v", got)
	}
}
