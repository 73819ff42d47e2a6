package agent_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestGuest boots one VM, saves it, and tests the agent in clones of it.
func TestGuest(t *testing.T) {
	if testing.Short() {
		t.Skip("boots VMs: not with -short")
	}
	tm := newTemplate(t)
	tests := map[string]func(*testing.T, *template){
		"Run": testRun, "Exec": testExec, "Errors": testErrors, "Signals": testSignals,
		"OOM": testOOM, "Pod": testPod, "Reconnect": testReconnect, "Pause": testPause,
		"Terminal": testTerminal, "Stdin": testStdin, "NoReader": testNoReader, "Users": testUsers, "Forward": testForward,
		"Confined": testConfined, "Backpressure": testBackpressure, "Distinct": testDistinct, "Update": testUpdate, "Size": testSize,
		"Tasks": testTasks, "Room": testRoom, "Devices": testDevices, "Filtered": testFiltered,
		"Own": testOwn, "Verbatim": testVerbatim, "Hooks": testHooks, "Words": testWords, "ExecDetails": testExecDetails,
		"Nodes": testNodes, "Limits": testLimits, "PauseOne": testPauseOne,
		"OOMKills": testOOMKills, "Converted": testConverted, "Schedule": testSchedule, "Launcher": testLauncher, "Made": testMade,
	}
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		t.Run(name, func(t *testing.T) { tests[name](t, tm) })
	}
}

func testRun(t *testing.T, tm *template) {
	g := tm.start(t)
	c1 := agentv1.Process{Container: "c1"}
	began := time.Now()
	g.launch("c1", spec("sh", "-c", "echo hello; echo bad >&2; exit 3"))
	if got := g.read(c1, "stdout"); got != "hello\n" {
		t.Errorf("stdout = %q", got)
	}
	t.Logf("first container after %v", time.Since(began))
	if got := g.read(c1, "stderr"); got != "bad\n" {
		t.Errorf("stderr = %q", got)
	}
	if e := g.exit(c1); e.Code != 3 || e.Signal != 0 || e.OOMKilled {
		t.Errorf("exit = %+v", e)
	}
	e, err := g.Delete(g.ctx(), c1)
	if err != nil || e.Code != 3 {
		t.Errorf("delete = %+v, %v", e, err)
	}
	began = time.Now()
	g.launch("c1", spec("true")) // the name is free again
	g.exit(c1)
	t.Logf("second container after %v", time.Since(began))
	if _, err := g.Delete(g.ctx(), c1); err != nil {
		t.Error(err)
	}
	list, err := g.List(g.ctx())
	if err != nil || len(list.Processes) != 0 {
		t.Errorf("left over: %+v, %v", list, err)
	}
	g.must(g.Unmount(g.ctx(), agentv1.Unmount{Name: "busybox"}))
	g.must(g.Unmount(g.ctx(), agentv1.Unmount{Name: "scratch"}))
	g.must(g.Flush(g.ctx()))
}

func testExec(t *testing.T, tm *template) {
	g := tm.start(t)
	c := agentv1.Process{Container: "c"}
	g.launch("c", spec("sleep", "1000"))
	for i, id := range []string{"one", "two", "three"} {
		began := time.Now()
		out, e := g.exec("c", id, process("sh", "-c", "echo out; echo err >&2; exit 7"))
		if out != "out\nerr\n" || e.Code != 7 {
			t.Errorf("exec: %q, %+v", out, e)
		}
		t.Logf("exec %d took %v", i, time.Since(began))
	}
	pids, err := g.Pids(g.ctx(), c)
	if err != nil || len(pids.Pids) != 1 {
		t.Errorf("pids = %v, %v", pids, err)
	}
	stats, err := g.Stats(g.ctx(), c)
	if err != nil || stats.CPUUsec == 0 || stats.MemoryBytes == 0 || stats.Pids != 1 {
		t.Errorf("stats = %+v, %v", stats, err)
	}
	if _, err := g.Delete(g.ctx(), c); !errors.Is(err, agentv1.ErrBusy) {
		t.Errorf("delete of a running container: %v", err)
	}
	// An exec'd process ends with its container.
	name := agentv1.Process{Container: "c", Exec: "last"}
	if _, err := g.Exec(g.ctx(), agentv1.Exec{Process: name, Spec: raw(t, process("sleep", "1000"))}); err != nil {
		t.Fatal(err)
	}
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: c, Signal: int(unix.SIGKILL)}))
	if e := g.exit(name); e.Code != 137 || e.Signal != 9 {
		t.Errorf("exec after its container: %+v", e)
	}
	late := agentv1.Exec{Process: agentv1.Process{Container: "c", Exec: "late"}, Spec: raw(t, process("true"))}
	if _, err := g.Exec(g.ctx(), late); !errors.Is(err, agentv1.ErrBusy) {
		t.Errorf("exec in a container that ended: %v", err)
	}
	if e, err := g.Delete(g.ctx(), c); err != nil || e.Code != 137 {
		t.Errorf("delete: %+v, %v", e, err)
	}
}

func testErrors(t *testing.T, tm *template) {
	g := tm.start(t)
	for name, tc := range map[string]struct {
		spec map[string]any
		want error
	}{
		"missing":   {spec("/bin/missing"), agentv1.ErrNoCommand},
		"not found": {spec("missing"), agentv1.ErrNoCommand},
		"no exec":   {spec("/bin/noexec"), agentv1.ErrNotExec},
		"directory": {spec("/bin"), agentv1.ErrNotExec},
		"no args":   {spec(), agentv1.ErrNoCommand},
	} {
		err := g.tryCreate("bad", tc.spec)
		if err == nil {
			g.Delete(g.ctx(), agentv1.Process{Container: "bad"})
		}
		if !errors.Is(err, tc.want) || len(err.Error()) > 1200 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Only the process itself finds out that the kernel cannot run a file.
	garbage := agentv1.Process{Container: "garbage"}
	g.launch("garbage", spec("/bin/garbage"))
	if e, out := g.exit(garbage), g.read(garbage, "stderr"); e.Code != 1 || !strings.Contains(out, "Exec format error") {
		t.Errorf("garbage: %+v, %q", e, out)
	}
	g.launch("c", spec("sleep", "1000"))
	for name, tc := range map[string]struct {
		command string
		want    error
		says    string
	}{
		"missing":   {"/bin/missing", agentv1.ErrNoCommand, "exec: /bin/missing: no such file in the container"},
		"not found": {"missing", agentv1.ErrNoCommand, "exec: missing: not found in the container's PATH"},
		"no exec":   {"/bin/noexec", agentv1.ErrNotExec, "exec: /bin/noexec: cannot be run: permission denied, or not a program"},
	} {
		p := agentv1.Process{Container: "c", Exec: "x"}
		_, err := g.Exec(g.ctx(), agentv1.Exec{Process: p, Spec: raw(t, process(tc.command))})
		var said *agentv1.Error
		if !errors.Is(err, tc.want) || !errors.As(err, &said) || said.Message != tc.says {
			t.Errorf("exec %s: %v", name, err)
		}
	}
	if err := g.tryCreate("c", spec("true")); !errors.Is(err, errdefs.ErrAlreadyExists) {
		t.Errorf("second of a name: %v", err)
	}
	if err := g.tryCreate("../c", spec("true")); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("path as id: %v", err)
	}
	if err := g.tryCreate("d", spec("true"), func(c *agentv1.Create) { c.Image = "other" }); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("unknown image: %v", err)
	}
	if _, err := g.Wait(g.ctx(), agentv1.Process{Container: "nobody"}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("unknown container: %v", err)
	}
	if err := g.Unmount(g.ctx(), agentv1.Unmount{Name: "busybox"}); !errors.Is(err, agentv1.ErrBusy) {
		t.Errorf("unmount in use: %v", err)
	}
	if err := g.Mount(g.ctx(), agentv1.Mount{Name: "empty", Slot: 3, FS: "erofs"}); err == nil {
		t.Error("an empty slot was mounted")
	}
	if err := g.Mount(g.ctx(), agentv1.Mount{Name: "none", Slot: 9, FS: "erofs"}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("missing slot: %v", err)
	}
}

func testSignals(t *testing.T, tm *template) {
	g := tm.start(t)
	c := agentv1.Process{Container: "c"}
	g.launch("c", spec("sh", "-c", "trap 'echo term; exit 9' TERM; trap 'echo usr1' USR1; echo ready; while :; do sleep 0.1; done"))
	out, err := g.Output(g.ctx(), agentv1.Output{Process: c, Stream: "stdout"})
	g.must(err)
	defer out.Close()
	expect := func(want string) {
		t.Helper()
		if _, data, err := out.Next(); err != nil || string(data) != want {
			t.Fatalf("output %q, %v; want %q", data, err, want)
		}
	}
	expect("ready\n")
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: c, Signal: int(unix.SIGUSR1)}))
	expect("usr1\n")
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: c, Signal: int(unix.SIGTERM)}))
	expect("term\n")
	if e := g.exit(c); e.Code != 9 {
		t.Errorf("exit = %+v", e)
	}
	if err := g.Signal(g.ctx(), agentv1.Signal{Process: c, Signal: int(unix.SIGTERM)}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("signal to an ended process: %v", err)
	}
	if err := g.Signal(g.ctx(), agentv1.Signal{Process: c, Signal: 4711}); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("signal 4711: %v", err)
	}
	all := agentv1.Process{Container: "all"}
	g.launch("all", spec("sh", "-c", "sleep 1000 & sleep 1000 & wait"))
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: all, Signal: int(unix.SIGKILL), All: true}))
	if e := g.exit(all); e.Code != 137 || e.OOMKilled {
		t.Errorf("exit = %+v", e)
	}
	// A created container that was never started can be deleted, and is killed.
	g.create("idle", spec("true"))
	if e, err := g.Delete(g.ctx(), agentv1.Process{Container: "idle"}); err != nil || e.Code != 137 {
		t.Errorf("delete of one not started: %+v, %v", e, err)
	}
}

func testOOM(t *testing.T, tm *template) {
	g := tm.start(t)
	s := spec("sh", "-c", "head -c 100000000 /dev/zero | tail | wc -c")
	s["linux"].(map[string]any)["resources"] = map[string]any{"memory": map[string]any{"limit": 16 << 20, "swap": 16 << 20}}
	s["process"].(map[string]any)["args"] = []string{"dd", "if=/dev/zero", "of=/dev/null", "bs=64M", "count=1"}
	g.launch("c", s)
	if e := g.exit(agentv1.Process{Container: "c"}); !e.OOMKilled || e.Code != 137 {
		t.Errorf("exit = %+v", e)
	}
	// With memory.oom.group a container dies as a whole.
	s["process"].(map[string]any)["args"] = []string{"sh", "-c", "dd if=/dev/zero of=/dev/null bs=64M count=1; echo child $?; sleep 2; exit 0"}
	s["linux"].(map[string]any)["resources"].(map[string]any)["unified"] = map[string]any{"memory.oom.group": "1"}
	g.launch("d", s)
	d := agentv1.Process{Container: "d"}
	if e, out := g.exit(d), g.read(d, "stdout"); !e.OOMKilled || e.Code != 137 || out != "" {
		t.Errorf("exit = %+v, %q", e, out)
	}
}

func testUpdate(t *testing.T, tm *template) {
	g := tm.start(t)
	g.launch("c", spec("sleep", "1000"))
	g.must(g.Update(g.ctx(), agentv1.Update{Container: "c", Resources: raw(t, map[string]any{
		"memory": map[string]any{"limit": 48 << 20},
		"cpu":    map[string]any{"quota": 50000, "period": 100000},
		"pids":   map[string]any{"limit": 100},
	})}))
	out, _ := g.exec("c", "show", process("cat", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/pids.max"))
	if want := "50331648\n50000 100000\n100\n"; out != want {
		t.Errorf("limits %q, want %q", out, want)
	}
	m, err := g.Memory(g.ctx())
	if err != nil || m.Total < 150<<20 || m.Total > 256<<20 || m.Available > m.Total {
		t.Errorf("memory = %+v, %v", m, err)
	}
	n, err := g.vm.Grow(g.ctx(), 512)
	if err != nil || n != 512 {
		t.Fatal(n, err)
	}
	// The guest uses new memory only a moment after it has accepted it.
	for end := time.Now().Add(testdeadline.For(10 * time.Second)); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if now, err := g.Memory(g.ctx()); err != nil || now.Total > m.Total+190<<20 {
			break
		}
	}
	m2, err := g.Memory(g.ctx())
	if err != nil || m2.Total < m.Total+190<<20 {
		t.Errorf("after growth: %+v, %v", m2, err)
	}
}
