package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

func TestSubjects(t *testing.T) {
	t.Parallel()
	for want, id := range map[string]Process{"container c": {Container: "c"}, "process c/e": {Container: "c", Exec: "e"}} {
		if got := subject(id); got != want {
			t.Errorf("%+v is %q", id, got)
		}
	}
	for want, id := range map[string]string{"sandbox in /s": "", "sandbox o": "o"} {
		s := &Sandbox{o: Options{ID: id, StateDir: "/s"}}
		if got := s.subject(); got != want {
			t.Errorf("%q is %q", id, got)
		}
	}
}

// TestStoredByAge: a container's own process is stored first, then its execs by age. An exec that cannot be stored is
// refused.
func TestStoredByAge(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	h.must(h.box.CreateContainer(h.ctx, h.container("other")))
	began := now()
	for i, name := range []string{"e3", "e1", "e4", "e0", "e2"} {
		id := h.exec(name, false)
		h.box.processes.mu.Lock()
		h.box.all[id].createdAt = began.Add(-time.Duration(i) * time.Hour) // older than the container's own process
		h.box.processes.mu.Unlock()
	}
	h.box.processes.mu.Lock()
	err := h.box.storeContainer("c")
	h.box.processes.mu.Unlock()
	h.must(err)
	_, st, err := h.box.store.ReadContainer("c")
	h.must(err)
	var order []string
	for _, p := range st.Processes {
		order = append(order, p.Exec)
	}
	if want := []string{"", "e2", "e0", "e4", "e1", "e3"}; !slices.Equal(order, want) {
		t.Errorf("stored as %q", order)
	}
	dir := h.box.store.Dir
	h.box.store.Dir = "/none"
	id := Process{Container: "c", Exec: "late"}
	if err := h.box.CreateExec(h.ctx, ExecConfig{Process: id, Stdio: containerv1.Discard{}}); err == nil {
		t.Error("an exec was created without a stored state")
	}
	if _, err := h.box.ProcessStatus(id); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("it is there: %v", err)
	}
	h.box.processes.mu.Lock()
	h.box.storeOrLog("c")
	h.box.saveOrLog()
	h.box.store.Dir = dir
	h.box.processes.mu.Unlock()
	if n := strings.Count(h.log.String(), "state not stored"); n != 2 {
		t.Errorf("logged %d times, want 2:\n%s", n, h.log)
	}
}

// TestStoreNothing: a missing container and a deleted sandbox are not stored.
func TestStoreNothing(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	path := h.box.store.Container("c", "state.json")
	h.must(os.Remove(path))
	h.box.processes.mu.Lock()
	defer h.box.processes.mu.Unlock()
	h.must(h.box.storeContainer("none"))
	h.box.store.Stop()
	h.must(h.box.storeContainer("c"))
	for _, path := range []string{path, h.box.store.Container("none")} {
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is there: %v", path, err)
		}
	}
}

// TestDeleteTakesItsOwnExecs: deleting a container deletes its own execs in the guest, and no others.
func TestDeleteTakesItsOwnExecs(t *testing.T) {
	t.Parallel()
	h := running(t)
	var ids []Process
	for _, c := range []string{"c", "other"} {
		p := h.started(c)
		for _, name := range []string{"e", "f"} {
			id := Process{Container: c, Exec: name}
			h.must(h.box.CreateExec(h.ctx, ExecConfig{Process: id, Spec: []byte(`{}`), Stdio: containerv1.Discard{}}))
			_, err := h.box.StartProcess(h.ctx, id)
			h.must(err)
			h.fake(id).finish(exited(0))
			h.wait(id)
			ids = append(ids, id)
		}
		ids = append(ids, Process{Container: c})
		p.finish(exited(0))
		h.wait(Process{Container: c})
	}
	_, err := h.box.DeleteProcess(h.ctx, Process{Container: "c"})
	h.must(err)
	for _, id := range ids {
		_, err := h.agent.proc(id)
		_, told := h.box.ProcessStatus(id)
		if gone := id.Container == "c"; errors.Is(err, errdefs.ErrNotFound) != gone || errors.Is(told, errdefs.ErrNotFound) != gone {
			t.Errorf("%v: %v in the guest, %v here", id, err, told)
		}
	}
}

// TestDeleteOfAFormerVM: deleting a container of an earlier VM releases no image of the current VM.
func TestDeleteOfAFormerVM(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("former")
	h.must(h.box.Stop(h.ctx))
	h.must(h.box.Start(h.ctx))
	c := h.container("c")
	c.Root = containerv1.Image{ID: "image-former"}
	h.must(h.box.CreateContainer(h.ctx, c))
	_, err := h.box.DeleteProcess(h.ctx, Process{Container: "former"})
	h.must(err)
	if n := h.agent.count(agentv1.OpDelete); n != 0 {
		t.Errorf("%d calls to the guest", n)
	}
	if n, ok := h.box.devices.Slots.Users("image-former"); n != 1 || !ok {
		t.Errorf("the image has %d users, and a slot: %v", n, ok)
	}
}

// TestKillOfProcessUnknownToTheGuest: an exec before its start, and a container with a command that cannot run, are
// ended without the guest.
func TestKillOfProcessUnknownToTheGuest(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	id := h.exec("e", false)
	h.must(h.box.SignalProcess(h.ctx, id, unix.SIGTERM, false))
	h.agent.refuse(agentv1.OpCreate, agentv1.ErrNoCommand)
	h.must(h.box.CreateContainer(h.ctx, h.container("missing")))
	h.must(h.box.SignalProcess(h.ctx, Process{Container: "missing"}, unix.SIGTERM, false))
	for _, id := range []Process{id, {Container: "missing"}} {
		if exit := h.wait(id); exit.Reason != ReasonNeverStarted {
			t.Errorf("%v: %+v", id, exit)
		}
	}
	if n := h.agent.count(agentv1.OpSignal); n != 0 {
		t.Errorf("the guest got %d signals", n)
	}
	h.agent.refuse(agentv1.OpCreate, nil)
	h.must(h.box.CreateContainer(h.ctx, h.container("ready")))
	runs := h.exec("runs", false)
	_, err := h.box.StartProcess(h.ctx, runs)
	h.must(err)
	for i, id := range []Process{runs, {Container: "ready"}} {
		h.must(h.box.SignalProcess(h.ctx, id, unix.SIGTERM, false))
		if st, err := h.box.ProcessStatus(id); err != nil || st.State == Stopped || h.agent.count(agentv1.OpSignal) != i+1 {
			t.Errorf("%v, which the guest knows: %s, %v", id, st.State, err)
		}
	}
	for _, sig := range []unix.Signal{-1, 0, 65} {
		if err := h.box.SignalProcess(h.ctx, Process{Container: "c"}, sig, false); !errors.Is(err, errdefs.ErrInvalidArgument) {
			t.Errorf("signal %d: %v", sig, err)
		}
	}
	for _, sig := range []unix.Signal{1, 64} {
		h.must(h.box.SignalProcess(h.ctx, Process{Container: "c"}, sig, false))
	}
}

// TestUnfeedClosesStdin: an exec's stdin closes with its client. A container's closes if it has StdinOnce or if
// CloseInput was called.
func TestUnfeedClosesStdin(t *testing.T) {
	t.Parallel()
	h := newHarness(t)
	for _, row := range []struct {
		exec    string
		stdin   containerv1.Stdin
		closeIn bool
		want    bool
	}{
		{"", containerv1.OpenStdin, false, false},
		{"", containerv1.OpenStdin, true, true},
		{"", containerv1.StdinOnce, false, true},
		{"e", containerv1.OpenStdin, false, true},
	} {
		p := h.box.newProcess(Process{Container: "c", Exec: row.exec}, nil, false, containerv1.Stream{Stdin: row.stdin})
		p.fed, p.closeIn = true, row.closeIn
		if got := p.releaseInput(); got != row.want || p.fed {
			t.Errorf("%+v: %v, fed %v", row, got, p.fed)
		}
	}
}

// TestCloseInput: closing the stdin fails for a process that has none or does not run. It waits for an attached client.
func TestCloseInput(t *testing.T) {
	t.Parallel()
	h := running(t)
	c := h.container("deaf")
	c.Stdio = containerv1.Log{File: "log"}
	h.must(h.box.CreateContainer(h.ctx, c))
	h.must(h.box.CreateContainer(h.ctx, h.container("ready")))
	for id, want := range map[string]error{"none": errdefs.ErrNotFound, "deaf": errdefs.ErrInvalidArgument,
		"ready": errdefs.ErrFailedPrecondition} {
		if err := h.box.CloseInput(h.ctx, Process{Container: id}); !errors.Is(err, want) {
			t.Errorf("%s: %v", id, err)
		}
	}
	if _, err := h.box.Attach(h.ctx, Process{Container: "deaf"}, Streams{Stdin: strings.NewReader("x")}); !errors.Is(err,
		errdefs.ErrInvalidArgument) {
		t.Errorf("attached to a missing stdin: %v", err)
	}
	p := h.started("c")
	id := Process{Container: "c"}
	r, w := io.Pipe()
	fed := h.attach(id, Streams{Stdin: r})
	if _, err := io.WriteString(w, "x"); err != nil {
		t.Fatal(err)
	}
	h.must(p.until(h.ctx, func() bool { return string(p.input) == "x" }))
	h.must(h.box.CloseInput(h.ctx, id))
	if _, err := io.WriteString(w, "y"); err != nil {
		t.Fatal(err)
	}
	h.must(p.until(h.ctx, func() bool { return string(p.input) == "xy" }))
	w.Close()
	h.must(p.until(h.ctx, func() bool { return p.inEOF }))
	p.finish(exited(0))
	h.must(<-fed)
}

// TestFeedOnly: a client that only feeds a container can stay for any time and leaves the stdin open.
func TestFeedOnly(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.box.patience = 20 * time.Millisecond
	p := h.started("c")
	r, w := io.Pipe()
	fed := h.attach(Process{Container: "c"}, Streams{Stdin: r})
	select {
	case err := <-fed:
		t.Fatalf("its client ended: %v", err)
	case <-time.After(5 * h.box.patience):
	}
	if _, err := io.WriteString(w, "x"); err != nil {
		t.Fatal(err)
	}
	h.must(p.until(h.ctx, func() bool { return string(p.input) == "x" }))
	w.Close()
	<-fed // the container lives on
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inEOF {
		t.Error("its stdin is closed")
	}
}

// TestEveryLogIsRestored: each restored process has its own log and standard streams; a process without a log does not
// prevent that.
func TestEveryLogIsRestored(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	h.started("d")
	for _, name := range []string{"e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7"} {
		h.exec(name, false)
	}
	h.crash()
	h.must(h.restore(h.logFiles("c", "d")))
	h.box.processes.mu.Lock()
	defer h.box.processes.mu.Unlock()
	for id, p := range h.box.all {
		if own := id.Exec == ""; own != (p.log != nil) || own != p.logs() || own == p.streams() {
			t.Errorf("%s: a log %v, standard streams %#v", p.subject(), p.log != nil, p.stdio)
		}
	}
}

// TestResume: a restored process's state follows from the guest's report, if there is one.
func TestResume(t *testing.T) {
	t.Parallel()
	own, exec := Process{Container: "c"}, Process{Container: "c", Exec: "e"}
	known := func(st ...agentv1.Status) map[Process]agentv1.Status {
		m := map[Process]agentv1.Status{}
		for _, s := range st {
			m[s.Process] = s
		}
		return m
	}
	for name, row := range map[string]struct {
		id     Process
		state  State
		known  map[Process]agentv1.Status
		want   State
		reason string
		pid    int
	}{
		"an exec that had not started":  {exec, Ready, known(), Stopped, ReasonNeverStarted, 0},
		"a container that is not there": {own, Ready, known(), Stopped, ReasonError, 0},
		"an exec that is not there":     {exec, Running, known(), Stopped, ReasonError, 0},
		"an exec, guest not asked":      {exec, Ready, nil, Ready, "", 0},
		"a container, guest not asked":  {own, Ready, nil, Ready, "", 0},
		"a container that is made":      {own, Ready, known(agentv1.Status{Process: own, PID: 5, Created: true}), Ready, "", 5},
		"a container that was started":  {own, Ready, known(agentv1.Status{Process: own, PID: 5}), Running, "", 5},
	} {
		h := running(t)
		p := h.box.newProcess(row.id, h.box.vm, false, containerv1.Discard{})
		p.state = row.state
		if row.state == Running {
			close(p.started)
		}
		h.box.processes.mu.Lock()
		p.resume(h.box.vm, row.known)
		state, exit, pid := p.state, p.exit, p.pid
		h.box.processes.mu.Unlock()
		reason := ""
		if exit != nil {
			reason = exit.Reason
		}
		if state != row.want || reason != row.reason || pid != row.pid {
			t.Errorf("%s: %s, %q, process %d", name, state, reason, pid)
		}
	}
}

// TestExecsWait: a hundred exec'd processes run, although the channel has streams for fewer at once. The others wait, at
// most as long as their callers.
func TestExecsWait(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	const all = 100
	ids, started := make([]Process, all), make(chan Process, all)
	begin := func(ctx context.Context, id Process) error {
		_, err := h.box.StartProcess(ctx, id)
		if err == nil {
			started <- id
		}
		return err
	}
	for i := range ids {
		ids[i] = Process{Container: "c", Exec: fmt.Sprint("e", i)}
		h.must(h.box.CreateExec(h.ctx, ExecConfig{
			Process: ids[i], Spec: []byte(`{}`), Stdio: containerv1.Stream{Stdin: containerv1.StdinOnce},
		}))
	}
	for _, id := range ids[:maxExecs] {
		h.must(begin(h.ctx, id))
	}
	soon, cancel := context.WithTimeout(h.ctx, 10*time.Millisecond)
	defer cancel()
	if err := begin(soon, ids[maxExecs]); !errors.Is(err, errdefs.ErrResourceExhausted) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one more: %v", err)
	}
	errs := make(chan error, all)
	for _, id := range ids[maxExecs:] {
		go func() { errs <- begin(h.ctx, id) }()
	}
	for range ids {
		id := <-started
		done := make(chan error, 1)
		go func() {
			_, err := h.box.Attach(h.ctx, id, Streams{Stdout: io.Discard, Stderr: io.Discard})
			done <- err
		}()
		h.fake(id).finish(exited(0))
		h.must(<-done)
	}
	for range ids[maxExecs:] {
		h.must(<-errs)
	}
}
