package sandbox

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/records"
)

// crash closes the sandbox like kill -9: it writes nothing more.
func (h *harness) crash() {
	h.t.Helper()
	h.box.store.Stop()
	h.box.Close()
}

func (h *harness) restore(f RestoreFiles) error {
	h.t.Helper()
	box, err := Restore(h.ctx, h.options(), f)
	if err == nil {
		h.use(box)
	}
	return err
}

func (h *harness) logFiles(ids ...string) RestoreFiles {
	f := RestoreFiles{Logs: map[string]*os.File{}}
	for _, id := range ids {
		f.Logs[id] = h.openLog(id)
	}
	return f
}

// TestRestore: any process can restore a pod from its config and state; output is logged exactly once.
func TestRestore(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.started("c")
	h.must(h.box.CreateContainer(h.ctx, h.container("waiting")))
	h.started("gone").finish(exited(5))
	h.wait(Process{Container: "gone"})
	h.write(p, "stdout", "one\nhal")
	h.write(p, "stderr", "err\n")
	h.must(p.until(h.ctx, func() bool { return p.out["stdout"].acked == 4 && p.out["stderr"].acked == 4 }))
	before := h.box.Status()
	h.crash()
	// Written after the last record, by the shim that died.
	log := h.openLog("c")
	_, err := log.WriteString("2026-01-01T00:00:00.000000000Z stdout F hal")
	h.must(err)
	log.Close()
	h.write(p, "stdout", "f\ntwo\n")

	h.must(h.restore(h.logFiles("c", "waiting", "gone")))
	after := h.box.Status()
	before.Phases, after.Phases = nil, nil
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	if got := h.wait(Process{Container: "gone"}); got.Code != 5 {
		t.Errorf("exit before the restore: %+v", got)
	}
	_, err = h.box.StartProcess(h.ctx, Process{Container: "waiting"})
	h.must(err)
	p.finish(exited(0))
	h.wait(Process{Container: "c"})
	lines := h.logged("c")
	var out, errs []string
	for _, l := range lines {
		if strings.HasPrefix(l, "stdout") {
			out = append(out, l)
		} else {
			errs = append(errs, l)
		}
	}
	if diff := cmp.Diff([]string{"stdout F one", "stdout F half", "stdout F two"}, out); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"stderr F err"}, errs); diff != "" {
		t.Error(diff)
	}
	if n, _ := h.box.devices.Slots.Users("image-c"); n != 1 {
		t.Errorf("its image has %d users", n)
	}
	if log := h.log.String(); strings.Contains(log, "level=ERROR") {
		t.Error(log)
	}
	_, err = h.box.DeleteProcess(h.ctx, Process{Container: "c"})
	h.must(err)
	h.must(h.box.Stop(h.ctx))
	if !h.vm().killed {
		t.Error("the VM still runs")
	}
}

// TestRestoreHalfMounted: if the shim died while mounting an image, the image leaves its slot and the next container
// mounts it again.
func TestRestoreHalfMounted(t *testing.T) {
	t.Parallel()
	for _, mounted := range []bool{false, true} {
		h := running(t)
		h.vm().refuse("Detach", errors.New("the shim is dead"))
		h.agent.answer(agentv1.OpMount, func(conn net.Conn) {
			if mounted {
				h.agent.mu.Lock()
				h.agent.mounts["image-c"] = 1
				h.agent.mu.Unlock()
			}
			h.box.store.Stop()
			conn.Close()
		})
		if err := h.box.CreateContainer(h.ctx, h.container("c")); err == nil {
			t.Fatal("created without its image")
		}
		h.crash()
		h.vm().refuse("Detach", nil)
		delete(h.agent.raw, agentv1.OpMount)
		h.must(os.RemoveAll(h.dir + "/containers/c")) // a dead shim leaves no state of it
		h.must(h.restore(h.logFiles()))
		h.started("c")
		if n := h.vm().attached(); n != 2 {
			t.Errorf("%d slots are filled, of the scratch disk and the image", n)
		}
	}
}

// TestRestoreUpdatesProcesses: Restore learns from the agent what happened while no shim ran.
func TestRestoreUpdatesProcesses(t *testing.T) {
	t.Parallel()
	h := running(t)
	ended := h.started("ended")
	lost := h.started("lost")
	h.must(h.box.CreateContainer(h.ctx, h.container("started")))
	id := Process{Container: "ended", Exec: "e"}
	h.must(h.box.CreateExec(h.ctx, ExecConfig{Process: id, Stdio: containerv1.Stream{}}))
	h.crash()
	ended.finish(exited(3))
	h.fake(Process{Container: "started"}).update(func() { h.fake(Process{Container: "started"}).running = true })
	h.agent.mu.Lock()
	delete(h.agent.procs, Process{Container: "lost"})
	h.agent.mu.Unlock()
	_ = lost
	h.must(h.restore(h.logFiles("ended", "lost", "started")))
	if got := h.wait(Process{Container: "ended"}); got.Code != 3 {
		t.Errorf("ended: %+v", got)
	}
	if got := h.wait(Process{Container: "lost"}); got.Code != 137 || got.Reason != ReasonError {
		t.Errorf("lost: %+v", got)
	}
	if got := h.wait(id); got.Reason != ReasonNeverStarted {
		t.Errorf("exec that had not started: %+v", got)
	}
	st, err := h.box.ProcessStatus(Process{Container: "started"})
	h.must(err)
	if st.State != Running {
		t.Errorf("started: %+v", st)
	}
}

// TestRestorePausedContainers: a pause and its end count, even if the shim died before it stored them.
func TestRestorePausedContainers(t *testing.T) {
	t.Parallel()
	h := running(t)
	for _, id := range []string{"paused", "resumed", "runs"} {
		h.started(id)
	}
	h.must(h.box.PauseContainer(h.ctx, "resumed"))
	h.crash()
	h.fake(Process{Container: "paused"}).update(func() { h.fake(Process{Container: "paused"}).paused = true })
	h.fake(Process{Container: "resumed"}).update(func() { h.fake(Process{Container: "resumed"}).paused = false })
	h.must(h.restore(h.logFiles("paused", "resumed", "runs")))
	for id, want := range map[string]State{"paused": Paused, "resumed": Running, "runs": Running} {
		if st, err := h.box.ProcessStatus(Process{Container: id}); err != nil || st.State != want {
			t.Errorf("%s: %s, %v", id, st.State, err)
		}
	}
	h.must(h.box.ResumeContainer(h.ctx, "paused"))
	h.must(h.box.PauseContainer(h.ctx, "resumed"))
}

// TestPauseIsUndone: a container runs after a pause that failed, also if the guest pauses it late.
func TestPauseIsUndone(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.started("c")
	h.agent.answer(agentv1.OpPause, func(conn net.Conn) {
		p.update(func() { p.paused = true })
		conn.Close()
	})
	if err := h.box.PauseContainer(h.ctx, "c"); err == nil {
		t.Error("paused without an answer")
	}
	h.must(p.until(h.ctx, func() bool { return !p.paused }))
	if st, err := h.box.ProcessStatus(Process{Container: "c"}); err != nil || st.State != Running {
		t.Errorf("state %s, %v", st.State, err)
	}
}

func TestRestoreOfAPausedSandbox(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.started("c")
	h.must(h.box.Pause(h.ctx))
	h.crash()
	h.must(h.restore(h.logFiles("c")))
	if st := h.box.Status().State; st != Paused {
		t.Fatalf("state %s", st)
	}
	if n := h.agent.count(agentv1.OpList); n != 0 {
		t.Errorf("%d calls to the guest of a paused VM", n)
	}
	h.must(h.box.Resume(h.ctx))
	p.finish(exited(1))
	if got := h.wait(Process{Container: "c"}); got.Code != 1 {
		t.Errorf("exit %+v", got)
	}
}

func TestRestoreOfADeadVM(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	h.crash()
	h.vm().refuse("Adopt", hypervisor.ErrGone)
	h.must(h.restore(h.logFiles("c")))
	if st := h.box.Status(); st.State != Stopped || !strings.HasPrefix(st.ExitReason, ReasonVMKilled) {
		t.Errorf("status %+v", st)
	}
	id := Process{Container: "c"}
	if got := h.wait(id); got.Code != 137 || got.Reason != ReasonVMKilled {
		t.Errorf("exit %+v", got)
	}
	got, err := h.box.Attach(h.ctx, id, Streams{Stdin: strings.NewReader("x"), Stdout: newBuffer()})
	if err != nil || got.Code != 137 {
		t.Errorf("attached to: %+v, %v", got, err)
	}
	_, err = h.box.DeleteProcess(h.ctx, id)
	h.must(err)
	h.must(h.box.Start(h.ctx)) // on a new VM
}

func TestRestoreWithoutALogKeepsOutput(t *testing.T) {
	t.Parallel()
	h := running(t)
	p := h.started("c")
	h.crash()
	h.must(h.restore(RestoreFiles{}))
	h.write(p, "stdout", "kept\n")
	h.must(h.box.ReopenLog(h.ctx, "c", h.openLog("c")))
	p.finish(exited(0))
	h.wait(Process{Container: "c"})
	if diff := cmp.Diff([]string{"stdout F kept"}, h.logged("c")); diff != "" {
		t.Error(diff)
	}
}

// TestRestoreReadsOutputWithoutALog: a process without a log is not blocked by output that the earlier shim had partly
// read.
func TestRestoreReadsOutputWithoutALog(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.started("c")
	quiet := h.container("quiet")
	quiet.Log.Close()
	quiet.Stdio, quiet.Log = containerv1.Discard{}, nil
	h.must(h.box.CreateContainer(h.ctx, quiet))
	_, err := h.box.StartProcess(h.ctx, Process{Container: "quiet"})
	h.must(err)
	id := h.exec("e", false)
	out := newBuffer()
	h.attach(id, Streams{Stdout: out}) // the crash ends it
	_, err = h.box.StartProcess(h.ctx, id)
	h.must(err)
	procs := map[Process]*fakeProc{id: h.fake(id), {Container: "quiet"}: h.fake(Process{Container: "quiet"})}
	for _, p := range procs {
		h.write(p, "stdout", "before")
		h.must(p.until(h.ctx, func() bool { return p.out["stdout"].acked == 6 }))
	}
	h.crash()
	h.must(h.restore(h.logFiles("c")))
	for id, p := range procs {
		h.write(p, "stdout", strings.Repeat("x", 4*outputBound))
		p.finish(exited(4))
		if got := h.wait(id); got.Code != 4 {
			t.Errorf("%v: %+v", id, got)
		}
	}
}

// TestPassingErrorOfRestoreDeletesNothing: a temporary error of Restore must not delete a live pod's configuration.
func TestPassingErrorOfRestoreDeletesNothing(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for _, tt := range []struct {
		name       string
		break_, ok func(*harness)
	}{
		{"adopt", func(h *harness) { h.vm().refuse("Adopt", boom) }, func(h *harness) { h.vm().refuse("Adopt", nil) }},
		{"agent", func(h *harness) { h.agent.refuse(agentv1.OpList, boom) }, func(h *harness) { h.agent.refuse(agentv1.OpList, nil) }},
		{"log's record", func(h *harness) {
			os.Rename(h.dir+"/containers/c/log", h.dir+"/kept")
			os.Mkdir(h.dir+"/containers/c/log", 0o700)
		},
			func(h *harness) {
				os.Remove(h.dir + "/containers/c/log")
				os.Rename(h.dir+"/kept", h.dir+"/containers/c/log")
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := running(t)
			p := h.started("c")
			h.crash()
			before := h.files()
			tt.break_(h)
			if err := h.restore(h.logFiles("c")); err == nil {
				t.Fatal("restored")
			}
			tt.ok(h)
			if diff := cmp.Diff(before, h.files()); diff != "" {
				t.Errorf("changed on disk: %s", diff)
			}
			if h.vm().killed {
				t.Error("the VM was killed")
			}
			h.must(h.restore(h.logFiles("c")))
			p.finish(exited(0))
			h.wait(Process{Container: "c"})
		})
	}
}

// files returns the contents of the sandbox's own files.
func (h *harness) files() map[string]string {
	h.t.Helper()
	files := map[string]string{}
	for _, name := range []string{"config.json", "state.json", "containers/c/config.json", "containers/c/state.json"} {
		data, err := os.ReadFile(h.dir + "/" + name)
		h.must(err)
		files[name] = string(data)
	}
	return files
}

// TestDamagedFilesAreErrors: an unreadable state file is an error.
func TestDamagedFilesAreErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ file, from, to string }{
		{"state.json", `"state": "running"`, `"state": "sleeping"`},
		{"state.json", `"state": "running"`, `"state": ""`},
		{"state.json", `"version": 1`, `"version": 2`},
		{"state.json", "}\n", ""}, // cut in half
		{"state.json", "{", ""},
		{"config.json", `"version": 1`, `"version": 7`},
		{"config.json", "}\n", ""},
		{"containers/c/state.json", `"running"`, `"unknown"`},
		{"containers/c/state.json", `"running"`, `"stopped"`}, // without an exit
		{"containers/c/state.json", "}\n", ""},
		{"containers/c/state.json", `"state": "running"`, `"exec": "e", "state": "running"`},
		{"containers/c/state.json", `"processes": [`, `"processes": [], "former": [`},
		{"containers/c/config.json", `"id": "c"`, `"id": "d"`},
	} {
		t.Run(tt.file+" "+tt.to, func(t *testing.T) {
			t.Parallel()
			h := running(t)
			h.started("c")
			h.crash()
			path := h.dir + "/" + tt.file
			data, err := os.ReadFile(path)
			h.must(err)
			damaged := strings.Replace(string(data), tt.from, tt.to, 1)
			if tt.to == "" && tt.from == "}\n" {
				damaged = string(data[:len(data)/2])
			}
			if damaged == string(data) {
				t.Fatalf("nothing to damage in %s", data)
			}
			h.must(os.WriteFile(path, []byte(damaged), 0o600))
			if err := h.restore(RestoreFiles{}); !errors.Is(err, atomicfile.ErrCorrupt) {
				t.Errorf("restore: %v", err)
			}
			if h.vm().killed {
				t.Error("the VM was killed")
			}
		})
	}
	h := prepare(t)
	if err := h.restore(RestoreFiles{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("restore from an empty directory: %v", err)
	}
}

func TestRestoreLeavesAnotherShimsSandbox(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.crash()
	other := exec.Command("sleep", "60")
	h.must(other.Start())
	defer other.Wait()
	defer other.Process.Kill()
	owner, err := procid.Of(other.Process.Pid)
	h.must(err)
	st, err := h.box.store.ReadSandbox()
	h.must(err)
	st.Owner = owner
	h.must((&records.Store{Dir: h.dir}).Write(h.dir+"/state.json", st))
	if err := h.restore(RestoreFiles{}); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("restore: %v", err)
	}
}

// TestRestoreOfAHalfStartedSandbox: a VM that was being started when the shim died is killed.
func TestRestoreOfAHalfStartedSandbox(t *testing.T) {
	t.Parallel()
	h := running(t)
	h.crash()
	st, err := h.box.store.ReadSandbox()
	h.must(err)
	st.State, st.Starting = Ready, true
	h.must((&records.Store{Dir: h.dir}).Write(h.dir+"/state.json", st))
	h.must(h.restore(RestoreFiles{}))
	reason, err := h.box.WaitStopped(h.ctx)
	h.must(err)
	if reason != ReasonStartFailed || !h.vm().killed {
		t.Errorf("reason %q, killed %v", reason, h.vm().killed)
	}
}
