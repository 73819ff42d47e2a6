package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// TestFault: only an error that the VM's end may have caused is converted. Errors of the agent and the caller stay
// unchanged.
func TestFault(t *testing.T) {
	t.Parallel()
	h := running(t)
	m := h.box.vm
	if err := m.Fault(io.EOF); err != io.EOF { //nolint:errorlint // the very error
		t.Errorf("of a living VM: %v", err)
	}
	h.vm().die(nil)
	if err := m.Fault(io.EOF); !errors.Is(err, ErrVMGone) || !errors.Is(err, io.EOF) {
		t.Errorf("of a dead VM: %v", err)
	}
	for _, err := range []error{
		nil, &agentv1.Error{Message: "no"}, fmt.Errorf("a call: %w", ErrVMGone), fmt.Errorf("a call: %w", ErrVMStopped),
		fmt.Errorf("a call: %w", context.DeadlineExceeded), fmt.Errorf("a call: %w", context.Canceled),
	} {
		if got := m.Fault(err); got != err { //nolint:errorlint // the very error
			t.Errorf("%v becomes %v", err, got)
		}
	}
}

// TestVMKilledForMemory: the exit of a container reports that the host killed its VM for lack of memory.
func TestVMKilledForMemory(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	h.must(h.box.kill(h.ctx, h.box.vm, ReasonOOMKilled, "no memory"))
	if exit := h.wait(Process{Container: "c"}); exit.Reason != ReasonOOMKilled || exit.Code != 137 {
		t.Errorf("exit %+v", exit)
	}
	h.event(OOM)
}

// TestDrain: drain waits only for logged output of running processes.
func TestDrain(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	one := func(id string, stdio containerv1.Stdio, state State, followed bool) *process {
		p := h.box.newProcess(Process{Container: id}, nil, false, stdio)
		p.state, p.followed = state, followed
		return p
	}
	alive := one("alive", containerv1.Log{}, Running, true)
	h.box.processes.mu.Lock()
	for _, p := range []*process{
		one("stopped", containerv1.Log{}, Stopped, true), one("made", containerv1.Log{}, Ready, false),
		one("watched", containerv1.Stream{}, Running, true), alive,
	} {
		h.box.all[p.id] = p
	}
	h.box.processes.mu.Unlock()
	read := false
	time.AfterFunc(50*time.Millisecond, func() {
		read = true
		close(alive.pumped)
	})
	began := time.Now()
	h.box.drain()
	if took := time.Since(began); !read || took >= drainTimeout {
		t.Errorf("drain ended after %v, output was read: %v", took, read)
	}
	h.box.processes.mu.Lock()
	clear(h.box.all)
	h.box.processes.mu.Unlock()
}

// TestLogIf: errors are logged until the sandbox is closed.
func TestLogIf(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.box.logIf("nothing", nil)
	h.box.logIf("something", errors.New("boom"))
	h.box.Close()
	h.box.logIf("late", errors.New("boom"))
	if log := h.log.String(); strings.Contains(log, "nothing") || !strings.Contains(log, "something") || strings.Contains(log, "late") {
		t.Error(log)
	}
}

// TestStopWithoutAVM: a VM that has ended is not killed again.
func TestStopWithoutAVM(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.vm().die(nil)
	_, err := h.box.WaitStopped(h.ctx)
	h.must(err)
	h.vm().refuse("Kill", errors.New("Kill was called"))
	h.must(h.box.Stop(h.ctx))
	if st := h.box.Status(); !strings.HasPrefix(st.ExitReason, ReasonVMKilled) {
		t.Errorf("exit reason %s", st.ExitReason)
	}
}

// TestStopOfALateVM: stopping a sandbox during its VM's start kills the VM.
func TestStopOfALateVM(t *testing.T) {
	t.Parallel()
	h := prepare(t)
	o := h.options()
	vm := newFakeVM(t, h.agent)
	o.StartVM = func(ctx context.Context) (hypervisor.VM, error) {
		<-ctx.Done()
		return vm, nil
	}
	box, err := New(o)
	h.must(err)
	h.use(box)
	h.must(box.Create(h.ctx, h.config(), Files{}))
	h.must(box.Stop(h.ctx))
	if !vm.killed || box.Status().State != Stopped {
		t.Errorf("the VM was killed: %v, state %s", vm.killed, box.Status().State)
	}
}

// TestStopFlushesOnce: Stop does not flush a paused guest, and Delete does not flush at all.
func TestStopFlushesOnce(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*harness) error{
		"paused":  func(h *harness) error { return errors.Join(h.box.Pause(h.ctx), h.box.Stop(h.ctx)) },
		"deleted": func(h *harness) error { return h.box.Delete(h.ctx, true) },
	} {
		h := running(t)
		h.must(end(h))
		if n := h.agent.count(agentv1.OpFlush); n != 0 {
			t.Errorf("%s: flushed %d times", name, n)
		}
	}
}

// TestResumeReportsTheClock: a VM resumes even if its clock cannot be set.
func TestResumeReportsTheClock(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.must(h.box.Pause(h.ctx))
	h.agent.refuse(agentv1.OpSetTime, errors.New("boom"))
	err := h.box.Resume(h.ctx)
	if err == nil || !strings.Contains(err.Error(), "set the clock") || h.box.Status().State != Running {
		t.Errorf("%v, %s", err, h.box.Status().State)
	}
}

// TestNewRefuses: New needs a starter and a directory.
func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, edit := range []func(*Options){func(o *Options) { o.StartVM = nil }, func(o *Options) { o.StateDir = "" }} {
		o := prepare(t).options()
		edit(&o)
		if _, err := New(o); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Error(err)
		}
	}
}

// TestStopFlushes: only a failed flush is logged.
func TestStopFlushes(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{nil, errors.New("no")} {
		h := running(t)
		h.agent.refuse(agentv1.OpFlush, failure)
		h.must(h.box.Stop(h.ctx))
		if told := strings.Contains(h.log.String(), "did not flush"); told != (failure != nil) {
			t.Errorf("%v: %s", failure, h.log)
		}
	}
}

// TestMemoryThatIsNotReached: the recorded memory stays the same if the hypervisor cannot report the new one.
func TestMemoryThatIsNotReached(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.agent.resized()
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{}, 512))
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{}, 0))
	if calls := h.agent.resized(); len(calls) != 2 {
		t.Errorf("no change of memory, but calls %v", calls)
	}
	h.vm().refuse("Grow", errors.New("boom"))
	h.vm().mu.Lock()
	h.vm().grown = 0
	h.vm().mu.Unlock()
	if err := h.box.Resize(h.ctx, agentv1.PodLimits{}, 1024); err == nil || h.box.Status().MemoryMiB != 512 {
		t.Errorf("grown to %d MiB: %v", h.box.Status().MemoryMiB, err)
	}
	h.must(h.box.Resize(h.ctx, agentv1.PodLimits{}, 256))
	if got := h.box.Status().MemoryMiB; got != 512 || !strings.Contains(h.log.String(), "memory not given back") {
		t.Errorf("shrunk to %d MiB: %s", got, h.log)
	}
}

// TestConfigIsChecked: a sandbox with an id accepts only its own pod; one without an id accepts any pod.
func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		own  string
		edit func(*Config)
		ok   bool
	}{
		"its own":       {podID, func(*Config) {}, true},
		"for any pod":   {"", func(*Config) {}, true},
		"another's":     {podID, func(c *Config) { c.ID = "other" }, false},
		"an empty id":   {podID, func(c *Config) { c.ID = "" }, false},
		"without an id": {"", func(c *Config) { c.ID = "" }, false},
		"of the future": {podID, func(c *Config) { c.Version++ }, false},
	} {
		h := prepare(t)
		o := h.options()
		o.ID = row.own
		box, err := New(o)
		h.must(err)
		h.use(box)
		if err := box.Start(h.ctx); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: started without a configuration: %v", name, err)
		}
		c := h.config()
		row.edit(&c)
		scratch := h.scratch()
		if err := box.Create(h.ctx, c, Files{Scratch: scratch}); (err == nil) != row.ok || err != nil && !errors.Is(err,
			errdefs.ErrInvalidArgument) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := scratch.Stat(); (err == nil) != row.ok {
			t.Errorf("%s: its disk: %v", name, err)
		}
		h.must(box.Delete(h.ctx, true))
		if _, err := scratch.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: its disk is open after its end: %v", name, err)
		}
		if err := box.Start(h.ctx); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("%s: started after its end: %v", name, err)
		}
	}
}

// TestRehearseRefuses: only a sandbox without a pod rehearses. On refusal, the image's disk is closed.
func TestRehearseRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spoil func(*Sandbox)
		want  error
	}{
		"with a pod":   {func(s *Sandbox) { s.created = true }, errdefs.ErrInvalidArgument},
		"deleted":      {func(s *Sandbox) { s.deleted = true }, errdefs.ErrInvalidArgument},
		"let go":       {func(s *Sandbox) { s.work.Cancel() }, errdefs.ErrInvalidArgument},
		"without a VM": {func(s *Sandbox) { s.booting = nil }, ErrVMGone},
	} {
		h := newHarness(t)
		h.must(h.box.WaitBooted(h.ctx))
		image, before := h.disk("image"), h.box.booting
		tc.spoil(h.box)
		if err := h.box.Rehearse(h.ctx, Rehearsal{}, h.scratch(), image); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := image.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: the image is open: %v", name, err)
		}
		h.box.mu.Lock()
		h.box.created, h.box.deleted, h.box.booting = false, false, before
		h.box.mu.Unlock()
	}
}

// TestRefusedRehearsal: a rehearsal that is refused gives the sandbox no pod.
func TestRefusedRehearsal(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.must(h.box.Delete(h.ctx, false))
	if err := h.box.Rehearse(h.ctx, Rehearsal{}, h.scratch(), h.disk("image")); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("rehearse: %v", err)
	}
	if err := h.box.Create(h.ctx, h.config(), Files{}); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("create: %v", err)
	}
}

// TestNameDuringCreate: an error may name a sandbox that is being created. Only the race detector finds a fault.
func TestNameDuringCreate(t *testing.T) {
	t.Parallel()
	h := prepare(t)
	o := h.options()
	o.ID = ""
	box, err := New(o)
	h.must(err)
	h.use(box)
	over, cancel := context.WithCancel(h.ctx)
	cancel()
	begun, created, named := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(named)
		close(begun)
		for {
			if _, err := box.WaitStopped(over); err == nil {
				t.Error("it waited for no end")
			}
			select {
			case <-created:
				return
			default:
			}
		}
	}()
	<-begun
	time.Sleep(10 * time.Millisecond)
	h.must(box.Create(h.ctx, h.config(), Files{}))
	close(created)
	<-named
}

// TestRestoreKillsVMWithoutPod: Restore kills a VM if its sandbox never got a pod.
func TestRestoreKillsVMWithoutPod(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.must(h.box.WaitBooted(h.ctx))
	h.crash()
	scratch := h.scratch()
	h.must(h.restore(RestoreFiles{Scratch: scratch}))
	reason, err := h.box.WaitStopped(h.ctx)
	h.must(err)
	if n := h.agent.count(agentv1.OpList); reason != ReasonStartFailed || n != 0 {
		t.Errorf("reason %q, %d calls to the guest", reason, n)
	}
	h.box.Close()
	if _, err := scratch.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("its disk is open: %v", err)
	}
}

// TestRestoreFailsClosed: a failed Restore closes all files that were sent for it.
func TestRestoreFailsClosed(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	h.crash()
	h.vm().refuse("Adopt", errors.New("boom"))
	f := h.logFiles("c")
	f.Scratch = h.scratch()
	log := f.Logs["c"]
	if err := h.restore(f); err == nil || errors.Is(err, hypervisor.ErrGone) {
		t.Fatalf("restored: %v", err)
	}
	for _, file := range []*os.File{f.Scratch, log} {
		if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s is open: %v", file.Name(), err)
		}
	}
}
