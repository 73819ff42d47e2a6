package warm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
)

// stuck starts a fork whose child waits, when it joins its cgroup, until proceed is called.
func (p *parent) stuck(t *testing.T, ctx context.Context) (child int, proceed func(), result chan error, path string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	size, err := unix.FcntlInt(w.Fd(), unix.F_GETPIPE_SZ, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(w.Fd()), false); err != nil {
		t.Fatal(err)
	}
	path, listener := socket(t)
	result = make(chan error, 1)
	go func() {
		a, err := p.Fork(ctx, Request{
			Name: p.sibling(), Confinement: Confinement{Groups: []*os.File{w}},
			Files: []qemu.Inherited{{Number: 3, File: listener}},
		})
		if err == nil {
			t.Cleanup(func() { kill(t, a.PID) })
		}
		result <- err
	}()
	for child == 0 || !p.heard(t) {
		for _, pid := range p.children(t) {
			if waitsIn(unix.SYS_WRITE, strconv.Itoa(pid)) { // for the pipe, after its first answer
				child = pid
			}
		}
		if p.ctx.Err() != nil {
			t.Fatal(context.Cause(p.ctx))
		}
	}
	proceed = func() {
		if _, err := r.Read(make([]byte, size)); err != nil {
			t.Error(err)
		}
	}
	return child, proceed, result, path
}

// heard reports whether Fork has read every answer that was sent.
func (p *parent) heard(t *testing.T) (heard bool) {
	t.Helper()
	raw, err := p.Control.conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		heard = err == nil && n == 0
	}); err != nil {
		t.Fatal(err)
	}
	return heard
}

// waitsIn reports whether a thread, a path in /proc, waits in a system call.
func waitsIn(call int, thread string) bool {
	s, err := os.ReadFile(filepath.Join("/proc", thread, "syscall"))
	return err == nil && strings.HasPrefix(string(s), strconv.Itoa(call)+" ")
}

// sibling is a name that only p's children have.
func (p *parent) sibling() string { return strings.Replace(p.name, "a", "b", 1) }

// children returns the processes that are copies of the parent, also dead ones that have not been reaped.
func (p *parent) children(t *testing.T) (pids []int) {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == p.pid {
			continue
		}
		comm, err := os.ReadFile(filepath.Join("/proc", e.Name(), "comm"))
		if err == nil && string(comm) == p.comm+"\n" {
			pids = append(pids, pid)
		}
	}
	return pids
}

// alone waits until the parent has no copies.
func (p *parent) alone(t *testing.T) {
	t.Helper()
	for len(p.children(t)) > 0 {
		if p.ctx.Err() != nil {
			t.Fatalf("there are copies of the parent: %v", p.children(t))
		}
	}
}

// TestInterrupted checks that an interrupted fork either reports its child or leaves none.
func TestInterrupted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		interrupt func(t *testing.T, p *parent, child int, cancel func())
		gone      bool
		text      string
	}{
		"the child is killed": {
			interrupt: func(t *testing.T, _ *parent, child int, _ func()) { send(t, child, unix.SIGKILL) },
			text:      "it died",
		},
		"the child is stopped": {
			interrupt: func(t *testing.T, _ *parent, child int, _ func()) { send(t, child, unix.SIGSTOP) },
			text:      "timed out",
		},
		"the parent is killed":  {interrupt: func(t *testing.T, p *parent, _ int, _ func()) { send(t, p.pid, unix.SIGKILL) }, gone: true},
		"the caller gives up":   {interrupt: func(_ *testing.T, _ *parent, _ int, cancel func()) { cancel() }, gone: true},
		"the control is closed": {interrupt: func(_ *testing.T, p *parent, _ int, _ func()) { p.Close() }, gone: true},
		"the parent hangs": {
			interrupt: func(t *testing.T, p *parent, _ int, cancel func()) { testproc.Stop(t, p.pid); cancel() }, gone: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := plain.start(t)
			ctx, cancel := context.WithCancel(p.ctx)
			defer cancel()
			child, proceed, result, _ := p.stuck(t, ctx)
			began := time.Now()
			test.interrupt(t, p, child, cancel)
			err := <-result
			if !errors.Is(err, ErrFork) || errors.Is(err, errGone) != test.gone || !strings.Contains(err.Error(), test.text) {
				t.Errorf("fork: %v", err)
			}
			t.Logf("after %v: %v", time.Since(began), err)
			if err := unix.Kill(child, 0); !errors.Is(err, unix.ESRCH) {
				t.Errorf("the child %d is there: %v", child, err)
			}
			proceed()
			p.alone(t)
		})
	}
}

func send(t *testing.T, pid int, signal unix.Signal) {
	t.Helper()
	if err := unix.Kill(pid, signal); err != nil {
		t.Error(err)
	}
}

// TestUntold checks that a complete child ends if nobody received the answer about it.
func TestUntold(t *testing.T) {
	t.Parallel()
	p := plain.start(t)
	child, proceed, result, _ := p.stuck(t, p.ctx)
	testproc.Stop(t, p.pid)
	proceed()
	send(t, p.pid, unix.SIGKILL)
	if err := <-result; !errors.Is(err, errGone) {
		t.Error(err)
	}
	if err := unix.Kill(child, 0); !errors.Is(err, unix.ESRCH) {
		t.Errorf("the child %d is there: %v", child, err)
	}
	p.alone(t)
}

// TestSignals checks that signals that arrive during a fork wait until the child is complete.
func TestSignals(t *testing.T) {
	t.Parallel()
	p := plain.start(t)
	child, proceed, result, path := p.stuck(t, p.ctx)
	for _, s := range []unix.Signal{unix.SIGUSR1, unix.SIGUSR2, unix.SIGSTOP, unix.SIGCONT} {
		send(t, child, s)
	}
	proceed()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	c := reach(t, p.ctx, child, path)
	for c.ask(t, p.ctx, "signals") != "1" {
		continue
	}
	c.workers(t, p.ctx)
}

// TestEnd checks that a parent ends when its control connection is closed, also while it reads a request.
func TestEnd(t *testing.T) {
	t.Parallel()
	p := plain.start(t)
	c, _ := p.child(Request{})
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		p.ended <- err
		if err != nil {
			t.Errorf("it ended with %v", err)
		}
	case <-p.ctx.Done():
		t.Fatal(context.Cause(p.ctx))
	}
	c.workers(t, p.ctx)
	if _, err := p.Fork(p.ctx, Request{}); !errors.Is(err, errGone) {
		t.Errorf("fork of a parent that has ended: %v", err)
	}
}
