package sandbox

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// TestDeleteWhatRuns: a process that runs in the guest although its start was not recorded is killed before it is
// deleted. A container is killed with all its processes, an exec alone.
func TestDeleteWhatRuns(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, row := range map[string]struct {
		exec   bool
		spoil  func(*harness, *fakeProc)
		signal bool // the process gets a signal
		want   string
	}{
		"a container":            {false, nil, true, ""},
		"an exec":                {true, nil, true, ""},
		"one that has just gone": {false, func(h *harness, _ *fakeProc) { h.agent.refuse(agentv1.OpDelete, errdefs.ErrNotFound) }, false, ""},
		"no delete":              {false, func(h *harness, _ *fakeProc) { h.agent.refuse(agentv1.OpDelete, boom) }, false, "boom"},
		"no signal":              {false, func(h *harness, _ *fakeProc) { h.agent.refuse(agentv1.OpSignal, boom) }, false, "boom"},
		"no wait":                {false, func(h *harness, _ *fakeProc) { h.agent.refuse(agentv1.OpWait, boom) }, true, "boom"},
		"a busy child": {false, func(h *harness, p *fakeProc) {
			h.agent.refuse(agentv1.OpSignal, errdefs.ErrNotFound)
			p.update(func() { p.exit = &agentv1.Exit{At: time.Now()} })
		}, false, agentv1.ErrBusy.Error()},
	} {
		h := running(t)
		id := Process{Container: "c"}
		if row.exec {
			h.started("c")
			id = h.exec("e", false)
			h.agent.mu.Lock()
			h.agent.procs[id] = newFakeProc(false)
			h.agent.mu.Unlock()
		} else {
			h.must(h.box.CreateContainer(h.ctx, h.container("c")))
		}
		p := h.fake(id)
		p.update(func() { p.running = true })
		if row.spoil != nil {
			row.spoil(h, p)
		}
		_, err := h.box.DeleteProcess(h.ctx, id)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v", name, err)
		}
		if _, told := h.box.ProcessStatus(id); errors.Is(told, errdefs.ErrNotFound) != (err == nil) {
			t.Errorf("%s: afterwards %v", name, told)
		}
		if got := len(p.signals) == 1 && p.signals[0] == 9; got != row.signal || got && p.all == row.exec {
			t.Errorf("%s: signals %v, to all %v", name, p.signals, p.all)
		}
	}
}

// TestDeleteWhileTheVMEnds: a container is gone with its VM, although the channel ends before the VM does.
func TestDeleteWhileTheVMEnds(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.must(h.box.CreateContainer(h.ctx, h.container("c")))
	h.agent.answer(agentv1.OpDelete, func(net.Conn) {
		h.vm().cut()
		time.AfterFunc(100*time.Millisecond, func() { h.vm().die(nil) })
	})
	if _, err := h.box.DeleteProcess(h.ctx, Process{Container: "c"}); err != nil {
		t.Error(err)
	}
}

// TestDeleteOfAnExec: deleting an exec leaves its container and other execs.
func TestDeleteOfAnExec(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	one, two := h.exec("one", false), h.exec("two", false)
	for _, id := range []Process{one, two} {
		_, err := h.box.StartProcess(h.ctx, id)
		h.must(err)
	}
	h.fake(one).finish(exited(0))
	go func() { _, _ = h.box.Attach(h.ctx, one, Streams{Stdout: newBuffer()}) }()
	h.wait(one)
	_, err := h.box.DeleteProcess(h.ctx, one)
	h.must(err)
	if _, err := h.agent.proc(one); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("the guest still has it: %v", err)
	}
	if _, err := h.agent.proc(two); err != nil {
		t.Error(err)
	}
	if st, err := h.box.ProcessStatus(two); err != nil || st.State != Running {
		t.Errorf("the other is %s: %v", st.State, err)
	}
}

// TestDeleteThatLeavesFiles: a container with files that cannot be removed is deleted, and the error names them.
func TestDeleteThatLeavesFiles(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.must(h.box.CreateContainer(h.ctx, h.container("c")))
	h.box.processes.mu.Lock()
	h.box.store.Dir = "/none"
	h.box.processes.mu.Unlock()
	if _, err := h.box.DeleteProcess(h.ctx, Process{Container: "c"}); err == nil || !strings.Contains(err.Error(), "delete container c") {
		t.Error(err)
	}
}

// TestFilesOfNoVM: without a VM, files cannot be written to a volume.
func TestFilesOfNoVM(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	if _, err := h.box.WriteFiles(h.ctx, agentv1.Files{}); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Error(err)
	}
}

// TestExecsAreChecked: an exec needs a running container and an unused id.
func TestExecsAreChecked(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	h.exec("e", false)
	h.must(h.box.CreateContainer(h.ctx, h.container("ready")))
	for id, want := range map[Process]error{
		{Container: "c", Exec: "e"}:     errdefs.ErrAlreadyExists,
		{Container: "none", Exec: "e"}:  errdefs.ErrNotFound,
		{Container: "ready", Exec: "e"}: errdefs.ErrFailedPrecondition,
		{Container: "c", Exec: "../e"}:  errdefs.ErrInvalidArgument,
		{Container: "c"}:                errdefs.ErrInvalidArgument,
	} {
		if err := h.box.CreateExec(h.ctx, ExecConfig{Process: id, Stdio: containerv1.Discard{}}); !errors.Is(err, want) {
			t.Errorf("%+v: %v", id, err)
		}
	}
}

// TestContainerFiles: a container's descriptors are closed, its log's only if the creation fails. The guest is told how
// to handle its stdin.
func TestContainerFiles(t *testing.T) {
	t.Parallel()
	h := running(t)
	for i, in := range []containerv1.Stdin{containerv1.NoStdin, containerv1.OpenStdin, containerv1.StdinOnce} {
		c := h.container("c" + string(rune('0'+i)))
		c.Stdio = containerv1.Log{File: "log", Stdin: in}
		h.must(h.box.CreateContainer(h.ctx, c))
		got := h.agent.created[i]
		if got.Stdin != (in != containerv1.NoStdin) || got.StdinOnce != (in == containerv1.StdinOnce) {
			t.Errorf("%q: %+v", in, got)
		}
		if _, err := c.RootFile.Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%q: its disk is open: %v", in, err)
		}
		if _, err := c.Log.Stat(); err != nil {
			t.Errorf("%q: its log: %v", in, err)
		}
	}
	c := h.container("../c")
	if err := h.box.CreateContainer(h.ctx, c); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Error(err)
	}
	if _, err := c.Log.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the log of a container that was not created is open: %v", err)
	}
	boom, stuck := errors.New("boom"), errors.New("stuck")
	for _, undo := range []error{nil, stuck} {
		h.agent.refuse(agentv1.OpCreate, boom)
		h.agent.refuse(agentv1.OpDelete, undo)
		c := h.container("fails")
		err := h.box.CreateContainer(h.ctx, c)
		if err == nil || !strings.Contains(err.Error(), "boom") || strings.Contains(err.Error(), "stuck") != (undo != nil) ||
			errors.Is(err, errdefs.ErrNotFound) {
			t.Errorf("undone with %v: %v", undo, err)
		}
		for _, file := range []*os.File{c.RootFile, c.Log} {
			if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("%s is open: %v", file.Name(), err)
			}
		}
	}
}

// TestCauseOf: a context's cause is added to an error once.
func TestCauseOf(t *testing.T) {
	t.Parallel()
	cause, other := errors.New("cause"), errors.New("other")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for _, row := range []struct {
		ctx  context.Context
		err  error
		want string
	}{{t.Context(), other, "other"}, {ended, cause, "cause"}, {ended, other, "cause (other)"}} {
		if got := causeOf(row.ctx, row.err); got.Error() != row.want || !errors.Is(got, row.err) {
			t.Errorf("%v becomes %v, want %s", row.err, got, row.want)
		}
	}
}

// TestDefaults: unset options get their defaults, and set options stay.
func TestDefaults(t *testing.T) {
	t.Parallel()
	o := Options{}.withDefaults()
	if o.BootTimeout != time.Minute || o.CallTimeout != 30*time.Second || o.Logger == nil || o.bootLimit() != time.Minute {
		t.Errorf("%+v", o)
	}
	given := prepare(t).options()
	given.BootTimeout, given.CallTimeout, given.Patience = 1, 2, 3
	o = given.withDefaults()
	if o.BootTimeout != 1 || o.CallTimeout != 2 || o.Logger != given.Logger || o.bootLimit() != 3*PatienceTimes {
		t.Errorf("%+v", o)
	}
}
