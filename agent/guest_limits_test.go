package agent_test

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// device is a device of an OCI specification: "c 1:3".
func device(path, number string, more ...any) map[string]any {
	kind, rest, _ := strings.Cut(number, " ")
	d := map[string]any{"path": path, "type": kind}
	if major, minor, ok := strings.Cut(rest, ":"); ok {
		d["major"], d["minor"] = json.Number(major), json.Number(minor)
	}
	for i := 0; i < len(more); i += 2 {
		d[more[i].(string)] = more[i+1]
	}
	return d
}

// rule is a rule of a device cgroup: "allow c 1:3 rwm", with * for any number.
func rule(text string) map[string]any {
	f := strings.Fields(text)
	r := map[string]any{"allow": f[0] == "allow", "access": f[len(f)-1]}
	if len(f) < 4 {
		return r
	}
	r["type"] = f[1]
	major, minor, _ := strings.Cut(f[2], ":")
	for key, n := range map[string]string{"major": major, "minor": minor} {
		if n != "*" {
			r[key] = json.Number(n)
		}
	}
	return r
}

func rules(texts ...string) (all []any) {
	for _, text := range texts {
		all = append(all, rule(text))
	}
	return all
}

// The rules that docker 20.10 and podman 4.3 write.
var (
	dockers = []string{
		"deny rwm", "allow c 1:5 rwm", "allow c 1:3 rwm", "allow c 1:9 rwm", "allow c 1:8 rwm", "allow c 5:0 rwm", "allow c 5:1 rwm",
		"deny c 10:229 rwm",
	}
	podmans    = []string{"deny rwm"}
	privileged = []string{"allow rwm"}
)

// testNodes: device nodes are as in the specification, and the rules of the clients hold for them.
func testNodes(t *testing.T, tm *template) {
	g := tm.start(t)
	const open = `for d in null zero full random urandom tty fuse net/tun mine; do
			[ -c /dev/$d ] && { dd if=/dev/$d of=/dev/null bs=1 count=0 2>/dev/null && echo $d || echo no $d; }
		done; stat -c "%n %a %u:%g %t:%T" /dev/fuse /dev/net/tun /dev/mine /dev/null`
	const modes = "/dev/fuse 600 0:8 a:e5\n/dev/net/tun 666 0:0 a:c8\n/dev/mine 640 0:5 1:3\n/dev/null 666 0:0 1:3\n"
	nodes := []any{
		device("/dev/fuse", "c 10:229", "fileMode", 0o20600, "gid", 8), device("/dev/net/tun", "c 10:200"),
		device("/dev/mine", "c 1:3", "fileMode", 0o640, "gid", 5),
	}
	const usual = "null\nzero\nfull\nrandom\nurandom\nno tty\n"
	for name, tc := range map[string]struct {
		rules []string
		want  string
	}{
		"docker":  {dockers, usual + "no fuse\nno net/tun\nmine\n"},
		"podman":  {podmans, usual + "no fuse\nno net/tun\nmine\n"},
		"given":   {append(podmans, "allow c 10:* rwm"), usual + "fuse\nnet/tun\nmine\n"},
		"all":     {privileged, usual + "fuse\nnet/tun\nmine\n"},
		"revoked": {append(privileged, "deny c 10:200 rwm"), usual + "fuse\nno net/tun\nmine\n"},
	} {
		s := change(verbatim("sh", "-c", open), rules(tc.rules...), "linux", "resources", "devices")
		change(s, nodes, "linux", "devices")
		g.launch(name, s)
		if got := g.read(agentv1.Process{Container: name}, "stdout"); got != tc.want+modes {
			t.Errorf("%s: %q, want %q", name, got, tc.want+modes)
		}
	}
	// A privileged container has the VM's devices, with the specification's own.
	s := change(verbatim("sh", "-c", "stat -c '%n %a' /dev/fuse; ls -d /dev/kmsg /dev/vda /dev/pts/ptmx; head -c 1 /dev/vda | wc -c"),
		rules(privileged...), "linux", "resources", "devices")
	change(s, []any{device("/dev/fuse", "c 10:229", "fileMode", 0o640)}, "linux", "devices")
	change(s, "true", "annotations", agentv1.AllDevices)
	g.launch("everything", s)
	const all = "/dev/fuse 640\n/dev/kmsg\n/dev/pts/ptmx\n/dev/vda\n1\n"
	if got, want := g.read(agentv1.Process{Container: "everything"}, "stdout"), all; got != want {
		t.Errorf("a privileged container: %q, want %q", got, want)
	}
	for _, d := range []map[string]any{device("/dev/host", "c 10:232"), device("/dev/sdz", "b 8:240"), device("/dev/x", "x 1:3")} {
		err := g.tryCreate("bad", change(verbatim("true"), []any{d}, "linux", "devices"))
		if !errors.Is(err, errdefs.ErrNotImplemented) || !strings.Contains(err.Error(), d["path"].(string)) {
			t.Errorf("%v: %v", d, err)
		}
	}
}

// testLimits: the limits of a specification and of an update are those of the container's group in the guest.
func testLimits(t *testing.T, tm *template) {
	g := tm.start(t)
	show := func(container string, files ...string) string {
		t.Helper()
		out := g.out(container, process("sh", "-c", "cd /sys/fs/cgroup; cat "+strings.Join(files, " ")))
		return strings.ReplaceAll(strings.TrimSpace(out), "\n", ", ")
	}
	files := []string{
		"memory.max", "memory.swap.max", "memory.low", "cpu.max", "cpu.weight", "cpuset.cpus", "pids.max", "hugetlb.2MB.max", "memory.high",
	}
	s := change(verbatim("sleep", "1000"), map[string]any{
		"devices":        rules(dockers...),
		"memory":         map[string]any{"limit": 64 << 20, "swap": 128 << 20, "reservation": 32 << 20},
		"cpu":            map[string]any{"shares": 2048, "quota": 50000, "period": 100000, "cpus": "0"},
		"pids":           map[string]any{"limit": 99},
		"hugepageLimits": []any{map[string]any{"pageSize": "2MB", "limit": 0}},
		"unified":        map[string]any{"memory.high": "60000000"},
	}, "linux", "resources")
	g.launch("full", s)
	if got, want := show("full", files...), "67108864, 67108864, 33554432, 50000 100000, 79, 0, 99, 0, 59998208"; got != want {
		t.Errorf("limits %q, want %q", got, want)
	}
	// docker gives zeroes to a container without limits.
	s = change(verbatim("sleep", "1000"), map[string]any{
		"devices": rules(dockers...), "memory": map[string]any{}, "cpu": map[string]any{"shares": 0}, "pids": map[string]any{"limit": 0},
	}, "linux", "resources")
	change(s, []any{device("/dev/net/tun", "c 10:200")}, "linux", "devices")
	g.launch("none", s)
	free := show("none", files...)
	if !strings.HasPrefix(free, "max, max, 0, max 100000, 100, , ") {
		t.Errorf("limits %q", free)
	}
	// An update changes one container, and only the limits that it names.
	update := func(resources map[string]any) {
		t.Helper()
		g.must(g.Update(g.ctx(), agentv1.Update{Container: "none", Resources: raw(t, resources)}))
	}
	update(map[string]any{"memory": map[string]any{"limit": 32 << 20, "swap": -1}, "cpu": map[string]any{"shares": 512}})
	if got := show("none", "memory.max", "memory.swap.max", "cpu.weight", "cpu.max"); got != "33554432, max, 20, max 100000" {
		t.Errorf("after an update: %q", got)
	}
	tasks := show("none", "pids.max")
	update(map[string]any{"pids": map[string]any{"limit": 7}, "unified": map[string]any{"memory.high": "max"}})
	if got := show("none", "pids.max", "memory.max"); got != "7, 33554432" {
		t.Errorf("after another update: %q", got)
	}
	update(map[string]any{"pids": map[string]any{"limit": -1}}) // the VM's own limit stays
	if got := show("none", "pids.max"); got != tasks || got == "max" {
		t.Errorf("tasks after an update to no limit: %q, before %q", got, tasks)
	}
	const open = "dd if=/dev/net/tun of=/dev/null bs=1 count=0 2>/dev/null && echo opens || echo refused"
	if got := g.in("none", open); got != "refused\n" {
		t.Errorf("a device before an update: %q", got)
	}
	update(map[string]any{"devices": rules(append(dockers, "allow c 10:200 rwm")...)})
	if got := g.in("none", open); got != "opens\n" {
		t.Errorf("a device after an update: %q", got)
	}
	update(map[string]any{"devices": rules(dockers...)})
	if got := g.in("none", open); got != "refused\n" {
		t.Errorf("a device after another update: %q", got)
	}
	if got, want := show("full", files...), "67108864, 67108864, 33554432, 50000 100000, 79, 0, 99, 0, 59998208"; got != want {
		t.Errorf("limits of the other %q, want %q", got, want)
	}
	// The error of an impossible limit names it.
	for name, resources := range map[string]map[string]any{
		"memory+swap": {"memory": map[string]any{"limit": 64 << 20, "swap": 32 << 20}},
		"no":          {"unified": map[string]any{"no.such": "1"}},
		"slash":       {"unified": map[string]any{"../x": "1"}},
	} {
		err := g.tryCreate("bad", change(verbatim("true"), resources, "linux", "resources"))
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
		if err := g.Update(g.ctx(), agentv1.Update{Container: "none", Resources: raw(t, resources)}); err == nil {
			t.Errorf("an update with %s succeeds", name)
		}
	}
}

// testPauseOne: a paused container waits with all of its processes, and the pod's other containers run.
func testPauseOne(t *testing.T, tm *template) {
	g := tm.start(t)
	const counts = "trap 'echo term; exit 9' TERM; while :; do echo x; sleep 0.05; done"
	shared := namespaces("mount", "pid=bulkhead.pod")
	for _, id := range []string{"a", "b"} {
		g.launch(id, change(verbatim("sh", "-c", counts), shared, "linux", "namespaces"))
	}
	a, b := agentv1.Process{Container: "a"}, agentv1.Process{Container: "b"}
	x := agentv1.Process{Container: "a", Exec: "x"}
	_, err := g.Exec(g.ctx(), agentv1.Exec{Process: x, Spec: raw(t, process("sh", "-c", counts))})
	g.must(err)
	for _, p := range []agentv1.Process{a, b, x} {
		g.until(p, "stdout", "x\n")
	}
	g.must(g.Pause(g.ctx(), a))
	g.must(g.Pause(g.ctx(), a)) // once more changes nothing
	states := func() {
		t.Helper()
		list, err := g.List(g.ctx())
		g.must(err)
		for _, s := range list.Processes {
			if s.Paused != (s.Container == "a") {
				t.Errorf("%v: paused %v", s.Process, s.Paused)
			}
		}
	}
	states()
	before, err := g.Stats(g.ctx(), a)
	g.must(err)
	g.in("b", "sleep 0.3")
	after, err := g.Stats(g.ctx(), a)
	if err != nil || after.CPUUsec != before.CPUUsec || after.Pids != before.Pids || before.Pids < 2 {
		t.Errorf("a paused container: %+v, then %+v, %v", before, after, err)
	}
	g.must(g.Update(g.ctx(), agentv1.Update{Container: "a", Resources: raw(t, map[string]any{"pids": map[string]any{"limit": 50}})}))
	late := agentv1.Exec{Process: agentv1.Process{Container: "a", Exec: "y"}, Spec: raw(t, process("true"))}
	if _, err := g.Exec(g.ctx(), late); !errors.Is(err, agentv1.ErrBusy) {
		t.Errorf("an exec in a paused container: %v", err)
	}
	// A signal waits, but not SIGKILL.
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: a, Signal: int(unix.SIGTERM)}))
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: x, Signal: int(unix.SIGKILL)}))
	if e := g.exit(x); e.Signal != 9 {
		t.Errorf("a killed process: %+v", e)
	}
	states()
	g.must(g.Resume(g.ctx(), a))
	if e := g.exit(a); e.Code != 9 {
		t.Errorf("a signal after a pause: %+v", e)
	}
	g.must(g.Pause(g.ctx(), b))
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: b, Signal: int(unix.SIGKILL), All: true}))
	if e := g.exit(b); e.Code != 137 {
		t.Errorf("a killed container that was paused: %+v", e)
	}
	for _, p := range []agentv1.Process{x, a, b} {
		if _, err := g.Delete(g.ctx(), p); err != nil {
			t.Error(err)
		}
	}
	if err := g.Pause(g.ctx(), a); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("a pause of a deleted container: %v", err)
	}
}

// testOOMKills: the agent reports a kill at once, also if the container goes on.
func testOOMKills(t *testing.T, tm *template) {
	g := tm.start(t)
	limited := func(command string) map[string]any {
		s := change(verbatim("sh", "-c", command), map[string]any{"limit": 16 << 20, "swap": 16 << 20}, "linux", "resources", "memory")
		return s
	}
	const eat = "dd if=/dev/zero of=/dev/null bs=64M count=1"
	known := agentv1.OOMKills{}
	next := func(want map[string]uint64) {
		t.Helper()
		now, err := g.OOMKills(g.ctx(), known)
		if diff := cmp.Diff(want, now.Kills); err != nil || diff != "" {
			t.Errorf("kills: %v, %s", err, diff)
		}
		known = now
	}
	c := agentv1.Process{Container: "c"}
	g.launch("c", limited(eat+"; echo went on; sleep 1000"))
	next(map[string]uint64{"c": 1})
	g.until(c, "stdout", "went on\n")
	g.launch("d", limited("sleep 1000")) // while the agent watches
	if out, e := g.exec("d", "x", process("sh", "-c", eat)); e.Code != 137 || !e.OOMKilled || e.OOMKills != 1 {
		t.Errorf("exit of a killed process: %+v, %q", e, out)
	}
	next(map[string]uint64{"c": 1, "d": 1})
	g.in("c", eat+" || echo killed")
	next(map[string]uint64{"c": 2, "d": 1})
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: c, Signal: int(unix.SIGKILL)}))
	if e := g.exit(c); e.OOMKilled || e.OOMKills != 2 {
		t.Errorf("exit = %+v", e)
	}
	_, err := g.Delete(g.ctx(), c)
	g.must(err)
	g.launch("e", limited(eat))
	next(map[string]uint64{"d": 1, "e": 1})
	if e := g.exit(agentv1.Process{Container: "e"}); !e.OOMKilled || e.OOMKills != 1 {
		t.Errorf("exit = %+v", e)
	}
}

// testSchedule: a container and its processes have the scheduling attributes of the specification, which crun ignores.
func testSchedule(t *testing.T, tm *template) {
	g := tm.start(t)
	const look = "cut -d' ' -f19,41 /proc/self/stat; ionice; grep Cpus_allowed_list /proc/self/status; cat /sys/fs/cgroup/cpu.max.burst"
	s := verbatim("sh", "-c", look+"; sleep 1000")
	change(s, map[string]any{"policy": "SCHED_BATCH", "nice": 7}, "process", "scheduler")
	change(s, map[string]any{"class": "IOPRIO_CLASS_IDLE", "priority": 0}, "process", "ioPriority")
	change(s, map[string]any{"quota": 50000, "period": 100000, "burst": 20000}, "linux", "resources", "cpu")
	g.launch("c", s)
	c := agentv1.Process{Container: "c"}
	const first = "7 3\nidle\nCpus_allowed_list:\t0\n20000\n"
	g.until(c, "stdout", first)
	p := process("sh", "-c", "sleep 0.3; "+look) // the attributes come just after the start
	if got := g.out("c", p); got != first {
		t.Errorf("a process without attributes: %q, want %q", got, first)
	}
	p["scheduler"] = map[string]any{"policy": "SCHED_IDLE"}
	p["ioPriority"], p["execCPUAffinity"] = map[string]any{"class": "IOPRIO_CLASS_BE", "priority": 6}, map[string]any{"final": "0"}
	if got, want := g.out("c", p), "0 5\nbest-effort: prio 6\nCpus_allowed_list:\t0\n20000\n"; got != want {
		t.Errorf("a process with its own: %q, want %q", got, want)
	}
	g.must(g.Update(g.ctx(), agentv1.Update{Container: "c", Resources: raw(t, map[string]any{
		"cpu": map[string]any{"quota": 10000, "period": 100000, "burst": 5000},
	})}))
	if got := g.in("c", "cat /sys/fs/cgroup/cpu.max.burst /sys/fs/cgroup/cpu.max"); got != "5000\n10000 100000\n" {
		t.Errorf("after an update: %q", got)
	}
	for says, bad := range map[string]map[string]any{
		"process.scheduler":       {"scheduler": map[string]any{"policy": "SCHED_ISO"}},
		"process.ioPriority":      {"ioPriority": map[string]any{"class": "none"}},
		"process.execCPUAffinity": {"execCPUAffinity": map[string]any{"final": "63"}},
	} {
		p := process("sleep", "1000")
		maps.Copy(p, bad)
		x := agentv1.Exec{Process: agentv1.Process{Container: "c", Exec: "bad"}, Spec: raw(t, p)}
		if _, err := g.Exec(g.ctx(), x); !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("exec with a bad %s: %v", says, err)
		}
		if says == "process.execCPUAffinity" {
			continue // for processes that are exec'd only
		}
		err := g.tryCreate("bad", change(verbatim(), p, "process"))
		if !errors.Is(err, errdefs.ErrInvalidArgument) || !strings.Contains(err.Error(), says) {
			t.Errorf("create with a bad %s: %v", says, err)
		}
	}
	list, err := g.List(g.ctx())
	if err != nil || len(list.Processes) != 1 {
		t.Errorf("left over: %+v, %v", list, err)
	}
}
