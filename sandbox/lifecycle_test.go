package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
)

func TestLife(t *testing.T) {
	t.Parallel()
	h := running(t)
	st := h.box.Status()
	if st.State != Running || st.MemoryMiB != 512 || st.Guest.Kernel != "6.1" || st.VM.PID == 0 {
		t.Fatalf("status %+v", st)
	}
	var phases []string
	for _, p := range st.Phases {
		phases = append(phases, p.Name)
	}
	for _, want := range []string{"machine", "channel", "await", "configure", "memory", "scratch"} {
		if !strings.Contains(strings.Join(phases, " "), want) {
			t.Errorf("phase %s is missing in %v", want, phases)
		}
	}
	c := h.agent.configured[0]
	if len(c.Entropy) != 64 || len(c.MachineID) != 32 || c.Sandbox != podID || time.Since(c.Time) > time.Minute {
		t.Errorf("configured with %+v", c)
	}
	if slot, ok := h.agent.mounts["scratch"]; !ok || slot != 0 {
		t.Errorf("scratch disk in slot %d, %v", slot, ok)
	}
	p := h.started("c")
	h.write(p, "stdout", "hello\n")
	p.finish(exited(3))
	if got := h.wait(Process{Container: "c"}); got.Code != 3 || got.Reason != ReasonError {
		t.Errorf("exit %+v", got)
	}
	if diff := cmp.Diff([]string{"stdout F hello"}, h.logged("c")); diff != "" {
		t.Error(diff)
	}
	_, err := h.box.DeleteProcess(h.ctx, Process{Container: "c"})
	h.must(err)
	h.must(h.box.Stop(h.ctx))
	h.must(h.box.Delete(h.ctx, false))
	h.box.Close()
	var kinds []EventKind
	for _, e := range h.events {
		kinds = append(kinds, e.Kind)
	}
	want := []EventKind{SandboxCreated, SandboxStarted, ContainerCreated, ProcessStarted, ProcessExited, ProcessDeleted, SandboxStopped}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
	left, _ := filepath.Glob(filepath.Join(h.dir, "*"))
	if len(left) != 1 || filepath.Base(left[0]) != "c.log" {
		t.Errorf("left behind: %v", left)
	}
}

// TestTwoVMsAreNotTwins: two VMs get different secrets.
func TestTwoVMsAreNotTwins(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.must(h.box.Stop(h.ctx))
	h.must(h.box.Start(h.ctx))
	a, b := h.agent.configured[0], h.agent.configured[1]
	if string(a.Entropy) == string(b.Entropy) || a.MachineID == b.MachineID {
		t.Error("both VMs got the same secrets")
	}
	if len(h.vms) != 2 {
		t.Errorf("%d VMs for two starts", len(h.vms))
	}
}

// TestTransitionsNameBothStates: an unexpected transition is an error that names both states.
func TestTransitionsNameBothStates(t *testing.T) {
	t.Parallel()
	type action struct {
		name string
		do   func(*harness) error
		ok   map[State]bool
	}
	id := Process{Container: "none"}
	actions := []action{
		{"start", func(h *harness) error { return h.box.Start(h.ctx) }, map[State]bool{Ready: true, Stopped: true}},
		{"pause", func(h *harness) error { return h.box.Pause(h.ctx) }, map[State]bool{Running: true}},
		{"resume", func(h *harness) error { return h.box.Resume(h.ctx) }, map[State]bool{Paused: true}},
		{"delete", func(h *harness) error { return h.box.Delete(h.ctx, false) }, map[State]bool{Ready: true, Stopped: true}},
		{"create a container in", func(h *harness) error {
			return h.box.CreateContainer(h.ctx, ContainerConfig{
				ID:       "x",
				Root:     containerv1.Image{ID: "i"},
				Stdio:    containerv1.Discard{},
				RootFile: h.disk("d"),
			})
		}, map[State]bool{Running: true}},
		{"start a process of", func(h *harness) error { _, err := h.box.StartProcess(h.ctx, id); return err }, nil},
		{"forward a port of", func(h *harness) error {
			c, err := h.box.Forward(h.ctx, 80)
			if err == nil {
				c.Close()
			}
			return err
		}, map[State]bool{Running: true}},
	}
	for _, state := range []State{Ready, Running, Paused, Stopped} {
		for _, a := range actions {
			t.Run(a.name+" while "+string(state), func(t *testing.T) {
				t.Parallel()
				h := newHarness(t)
				h.must(h.box.Create(h.ctx, h.config(), Files{}))
				if state != Ready {
					h.must(h.box.Start(h.ctx))
				}
				if state == Paused {
					h.must(h.box.Pause(h.ctx))
				}
				if state == Stopped {
					h.must(h.box.Stop(h.ctx))
				}
				err := a.do(h)
				if a.ok[state] {
					h.must(err)
					return
				}
				if state == Running && errors.Is(err, errdefs.ErrNotFound) {
					return // no such container: the sandbox's state was accepted
				}
				var se *StateError
				if !errors.As(err, &se) || !errors.Is(err, errdefs.ErrFailedPrecondition) {
					t.Fatalf("error %v is no StateError", err)
				}
				if se.State != state || !strings.Contains(err.Error(), string(state)) || !strings.Contains(err.Error(), string(se.Want[0])) {
					t.Errorf("error does not name both states: %v", err)
				}
				if h.box.Status().State != state {
					t.Errorf("state is now %s", h.box.Status().State)
				}
			})
		}
	}
}

func TestPauseAndResumeSetTheClock(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.must(h.box.Pause(h.ctx))
	if !h.vm().paused || h.box.Status().State != Paused {
		t.Fatal("not paused")
	}
	h.must(h.box.Resume(h.ctx))
	if h.vm().paused || h.box.Status().State != Running || len(h.agent.clock) != 1 {
		t.Errorf("resumed: %+v, clock set %d times", h.box.Status(), len(h.agent.clock))
	}
	h.vm().refuse("Pause", errors.New("stuck"))
	if err := h.box.Pause(h.ctx); err == nil || h.box.Status().State != Running {
		t.Errorf("failed pause: %v, %s", err, h.box.Status().State)
	}
	h.must(h.box.Pause(h.ctx2(func() { h.vm().refuse("Pause", nil) })))
	h.must(h.box.Stop(h.ctx)) // a paused VM can be stopped
}

// TestTheClockIsKept: a clock that is measurably wrong is corrected in both directions, but not while the VM is paused.
func TestTheClockIsKept(t *testing.T) {
	t.Parallel()
	h := running(t)
	keep := func(ahead time.Duration) time.Duration {
		t.Helper()
		h.agent.mu.Lock()
		h.agent.ahead = ahead
		h.agent.mu.Unlock()
		h.must(h.box.correctClock(h.box.vm))
		h.agent.mu.Lock()
		defer h.agent.mu.Unlock()
		return h.agent.ahead
	}
	for _, ahead := range []time.Duration{time.Hour, -3 * time.Second} {
		if left := keep(ahead); left.Abs() > time.Second {
			t.Errorf("a deviation of %v is corrected to %v", ahead, left)
		}
	}
	if left := keep(guest.ClockSlack / 2); left != guest.ClockSlack/2 {
		t.Errorf("a deviation within the precision was changed to %v", left)
	}
	h.must(h.box.Pause(h.ctx))
	if left := keep(time.Hour); left != time.Hour {
		t.Errorf("the clock of a paused VM was changed to %v", left)
	}
}

func (h *harness) ctx2(f func()) context.Context { f(); return h.ctx }

// TestFailedStartLeavesNothing: a failed start returns its error, stops the sandbox and kills the VM.
func TestFailedStartLeavesNothing(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tt := range []struct {
		name   string
		break_ func(*harness)
	}{
		{"machine", func(h *harness) { h.start = func() error { return boom } }},
		{"configure", func(h *harness) { h.agent.refuse(agentv1.OpConfigure, boom) }},
		{"memory", func(h *harness) { h.box.WaitBooted(h.ctx); h.vm().refuse("Grow", boom) }},
		{"attach", func(h *harness) { h.box.WaitBooted(h.ctx); h.vm().refuse("Attach", boom) }},
		{"mount", func(h *harness) { h.agent.refuse(agentv1.OpMount, boom) }},
		{"agent's version", func(h *harness) { h.agent.version = 9 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := prepare(t)
			early := tt.name == "machine" || tt.name == "agent's version"
			if early {
				tt.break_(h)
			}
			box, err := New(h.options())
			h.must(err)
			h.use(box)
			if !early {
				tt.break_(h)
			}
			h.must(box.Create(h.ctx, h.config(), Files{Scratch: h.scratch()}))
			err = box.Start(h.ctx)
			if err == nil || tt.name != "agent's version" && !strings.Contains(err.Error(), "boom") {
				t.Fatalf("start: %v", err)
			}
			if st := box.Status(); st.State != Stopped || !strings.Contains(st.ExitReason, ReasonStartFailed) {
				t.Errorf("after a failed start: %s, %q", st.State, st.ExitReason)
			}
			for _, vm := range h.vms {
				if !vm.killed {
					t.Error("the VM still runs")
				}
			}
			h.must(box.Stop(h.ctx))
			// It can be started again.
			h.start = nil
			h.agent.refuse(agentv1.OpConfigure, nil)
			h.agent.refuse(agentv1.OpMount, nil)
			h.agent.version = agentv1.Version
			h.must(box.Start(h.ctx))
		})
	}
}

// TestSlowStartEndsAtItsDeadline: a start that exceeds its deadline leaks neither goroutine nor VM.
func TestSlowStartEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	h := prepare(t)
	o := h.options()
	o.BootTimeout = 50 * time.Millisecond
	ended := make(chan struct{})
	o.StartVM = func(ctx context.Context) (hypervisor.VM, error) {
		defer close(ended)
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	box, err := New(o)
	h.must(err)
	h.use(box)
	h.must(box.Create(h.ctx, h.config(), Files{}))
	if err := box.Start(h.ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start: %v", err)
	}
	<-ended
}

func TestStopInterruptsStart(t *testing.T) {
	t.Parallel()
	h := prepare(t)
	o := h.options()
	o.StartVM = func(ctx context.Context) (hypervisor.VM, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	box, err := New(o)
	h.must(err)
	h.use(box)
	h.must(box.Create(h.ctx, h.config(), Files{}))
	started := make(chan error, 1)
	go func() { started <- box.Start(h.ctx) }()
	for at := false; !at; runtime.Gosched() {
		box.mu.Lock()
		at = box.interrupt != nil
		box.mu.Unlock()
	}
	h.must(box.Stop(h.ctx))
	if err := <-started; !errors.Is(err, errStopping) {
		t.Errorf("start: %v", err)
	}
	if st := box.Status(); st.State != Stopped {
		t.Errorf("state %s", st.State)
	}
}

// TestStopDoesNotNeedTheAgent: Stop kills the VM even if the agent fails.
func TestStopDoesNotNeedTheAgent(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.agent.refuse(agentv1.OpFlush, errors.New("no"))
	h.must(h.box.Stop(h.ctx))
	if !h.vm().killed {
		t.Error("the VM still runs")
	}
	h.must(h.box.Stop(h.ctx)) // idempotent
	if n := h.agent.count(agentv1.OpFlush); n != 1 {
		t.Errorf("flushed %d times", n)
	}
}

func TestStopThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.vm().refuse("Kill", errors.New("stuck"))
	if err := h.box.Stop(h.ctx); err == nil || h.box.Status().State != Running {
		t.Fatalf("stop: %v, %s", err, h.box.Status().State)
	}
	if err := h.box.Delete(h.ctx, true); err == nil {
		t.Fatal("deleted although the VM runs")
	}
	h.vm().refuse("Kill", nil)
	h.must(h.box.Delete(h.ctx, true))
}

// TestDeleteKillsTheVM: Delete kills a running VM.
func TestDeleteKillsTheVM(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.must(h.box.WaitBooted(h.ctx))
	h.must(h.box.Create(h.ctx, h.config(), Files{Scratch: h.scratch()}))
	h.must(h.box.Delete(h.ctx, false))
	if !h.vm().killed {
		t.Error("the VM of a ready sandbox still runs")
	}
	if entries, _ := os.ReadDir(h.dir); len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestCreateOnce(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	h.must(h.box.Create(h.ctx, h.config(), Files{}))
	if err := h.box.Create(h.ctx, h.config(), Files{}); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("second create: %v", err)
	}
	if _, err := New(h.options()); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("new over a stored sandbox: %v", err)
	}
}

// TestVMDiesUnderContainers: a VM's death is an event, and none of its processes is Completed.
func TestVMDiesUnderContainers(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.started("c")
	h.write(p, "stdout", "last words\n")
	h.must(p.until(h.ctx, func() bool { return p.out["stdout"].acked == 11 }))
	h.must(h.box.CreateContainer(h.ctx, h.container("waiting")))
	h.vm().die(errors.New("qemu: bad things"))
	reason, err := h.box.WaitStopped(h.ctx)
	h.must(err)
	if reason != ReasonVMKilled {
		t.Errorf("reason %q", reason)
	}
	for _, c := range []string{"c", "waiting"} {
		exit := h.wait(Process{Container: c})
		if exit.Code != 137 || exit.Reason != ReasonVMKilled || !strings.Contains(exit.Message, "bad things") {
			t.Errorf("%s ended as %+v", c, exit)
		}
	}
	if diff := cmp.Diff([]string{"stdout F last words"}, h.logged("c")); diff != "" {
		t.Error(diff)
	}
	if e := h.event(SandboxStopped); !strings.Contains(e.Message, "bad things") {
		t.Errorf("event %+v", e)
	}
	// Containers of the dead VM are deleted without it.
	_, err = h.box.DeleteProcess(h.ctx, Process{Container: "c"})
	h.must(err)
	h.must(h.box.Start(h.ctx))
	if _, err := h.box.StartProcess(h.ctx, Process{Container: "waiting"}); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("container of the earlier VM: %v", err)
	}
}
