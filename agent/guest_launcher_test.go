package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/timeline"
)

// byCrun makes crun start a process: the launcher leaves everything about terminals to crun. Without a terminal, the size
// has no effect.
func byCrun(p map[string]any) map[string]any {
	other := map[string]any{"consoleSize": map[string]any{"height": 1, "width": 1}}
	for key, value := range p {
		other[key] = value
	}
	return other
}

// started runs a process to its end and returns its output. by is the name of the program that has started it.
func (g *guest) started(container string, p map[string]any) (by, out string, err error) {
	g.t.Helper()
	name := agentv1.Process{Container: container, Exec: "started"}
	ctx, steps := timeline.With(g.ctx())
	if _, err = g.Exec(ctx, agentv1.Exec{Process: name, Spec: raw(g.t, p)}); err == nil {
		out = g.ended(name)
	}
	return starter(steps), out, err
}

// ended removes a process at its end, and returns its output and its exit code.
func (g *guest) ended(name agentv1.Process) string {
	g.t.Helper()
	out := g.read(name, "stdout") + g.read(name, "stderr") + fmt.Sprint(g.exit(name).Code)
	_, err := g.Delete(g.ctx(), name)
	g.must(err)
	return out
}

// starter returns the name of the program that has started the process of a call, by its steps.
func starter(steps *timeline.Recorder) (by string) {
	for _, s := range steps.Steps() {
		for _, part := range s.Parts {
			if part.Name == agentv1.PartCrun || part.Name == agentv1.PartLaunch {
				by = part.Name
			}
		}
	}
	return by
}

// look prints the properties of a process from the program that started it. It leaves out its own ids and times. It is sparing with
// programs, because their starts take most of the time.
const look = `echo "$0 $*"; pwd; umask; env; cd /proc/self
	grep -vE "^(Pid|Tgid|NSpid|NStgid|PPid|Vm|Rss|Hugetlb|SigQ|.*ctxt|Name|NSpgid|NSsid|Ngid|State)" status
	read -r stat </proc/$$/stat; set -- $stat; [ $5 = $6 ] && echo "a session's group"; [ $5 = $$ ] && echo leader
	echo $4 $7 $8 ${19} ${41}
	cat mountinfo cgroup limits oom_score_adj timerslack_ns
	stat -c %N fd/0 fd/1 fd/2 fd/3 fd/4 fd/5 fd/6 fd/7 fd/8 fd/9 fd/10 2>/dev/null
	stat -c %N ns/*; stat -L -c '%n %f %u %g' fd/0 fd/1 fd/2
	grep -E "^Sig(Blk|Ign|Cgt)|^Seccomp|^Speculation|^NoNew" /proc/$$/status | grep "[1-9a-f]"
	grep -E "policy|prio" sched; true`

// testLauncher starts the same processes with the launcher and with crun. They must find the same.
func testLauncher(t *testing.T, tm *template) {
	g := tm.start(t)
	filter := func(s map[string]any) map[string]any {
		return change(s, map[string]any{
			"defaultAction": "SCMP_ACT_ALLOW", "architectures": []string{"SCMP_ARCH_X86_64", "SCMP_ARCH_X86"},
			"syscalls": []any{map[string]any{"names": []string{"mkdir", "mkdirat", "ptrace"}, "action": "SCMP_ACT_ERRNO"}},
		}, "linux", "seccomp")
	}
	shared := change(spec("sleep", "1000"), namespaces("mount", "network", "cgroup", "pid=bulkhead.pod", "ipc", "uts"), "linux", "namespaces")
	for name, s := range map[string]map[string]any{
		"plain": spec("sleep", "1000"), "filtered": filter(spec("sleep", "1000")), "shared": shared,
		"readonly": change(spec("sleep", "1000"), true, "root", "readonly"),
		"own":      change(spec("sleep", "1000"), namespaces("mount", "network", "cgroup", "pid", "ipc", "uts"), "linux", "namespaces"),
		"none":     change(spec("sleep", "1000"), namespaces("mount"), "linux", "namespaces"),
		"masked":   change(spec("sleep", "1000"), []string{"/proc/kcore"}, "linux", "maskedPaths"),
		"adjusted": change(spec("sleep", "1000"), 500, "process", "oomScoreAdj"),
		"verbatim": verbatim("sleep", "1000"),
	} {
		g.launch(name, s)
	}
	all := []string{"CAP_CHOWN", "CAP_KILL", "CAP_NET_RAW", "CAP_SETPCAP", "CAP_CHECKPOINT_RESTORE"}
	sets := func(ambient ...string) map[string]any {
		return map[string]any{"bounding": all, "effective": all[:2], "permitted": all[:3], "inheritable": all[1:3], "ambient": ambient}
	}
	ids := func(uid, gid int, more ...any) map[string]any {
		user := map[string]any{"uid": uid, "gid": gid}
		for i := 0; i < len(more); i += 2 {
			user[more[i].(string)] = more[i+1]
		}
		return user
	}
	limits := []any{
		map[string]any{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 200},
		map[string]any{"type": "RLIMIT_CORE", "soft": 0, "hard": uint64(1<<64 - 1)},
		map[string]any{"type": "RLIMIT_STACK", "soft": 1 << 20, "hard": 1 << 21},
	}
	for name, tc := range map[string]struct {
		container string
		change    map[string]any
	}{
		"plain":             {"plain", nil},
		"read-only root":    {"readonly", nil},
		"namespaces":        {"own", nil},
		"VM's namespaces":   {"none", nil},
		"shared processes":  {"shared", nil},
		"masked":            {"masked", nil},
		"score":             {"adjusted", map[string]any{"oomScoreAdj": 700}},
		"user":              {"plain", map[string]any{"user": ids(1000, 1001)}},
		"name":              {"plain", map[string]any{"user": map[string]any{"username": "demo"}}},
		"groups":            {"plain", map[string]any{"user": ids(12, 34, "additionalGids", []int{5, 7, 3000000000})}},
		"umask":             {"verbatim", map[string]any{"user": ids(0, 0, "umask", 0o077)}},
		"capabilities":      {"plain", map[string]any{"capabilities": sets()}},
		"ambient":           {"plain", map[string]any{"capabilities": sets("CAP_KILL", "CAP_NET_RAW", "CAP_CHOWN"), "user": ids(7, 7)}},
		"container's set":   {"plain", map[string]any{"capabilities": nil}},
		"no capabilities":   {"plain", map[string]any{"capabilities": map[string]any{}, "user": ids(65534, 65534)}},
		"limits":            {"plain", map[string]any{"rlimits": limits, "user": ids(9, 9)}},
		"environment":       {"verbatim", map[string]any{"env": []string{"A=1", "PATH=/bin", "A=2", "EMPTY=", "HOME=/x", "A=3=4"}}},
		"directory":         {"plain", map[string]any{"cwd": "/home/demo", "user": ids(1000, 1001)}},
		"no_new_privs":      {"plain", map[string]any{"noNewPrivileges": true, "user": ids(1000, 1001), "capabilities": sets("CAP_KILL")}},
		"filter":            {"filtered", map[string]any{"capabilities": sets()}},
		"filter and user":   {"filtered", map[string]any{"user": ids(1000, 1001, "additionalGids", []int{1})}},
		"filter and no_new": {"filtered", map[string]any{"noNewPrivileges": true, "user": ids(1000, 1001)}},
	} {
		p := process("sh", "-c", look, "look", "two words", "")
		for key, value := range tc.change {
			if p[key] = value; value == nil {
				delete(p, key)
			}
		}
		by, ours, err := g.started(tc.container, p)
		if by != agentv1.PartLaunch || err != nil || len(ours) < 500 || !strings.HasSuffix(ours, "\n0") {
			t.Errorf("%s: started by %q, %v; %d bytes %q", name, by, err, len(ours), ours[max(0, len(ours)-100):])
		}
		by, theirs, err := g.started(tc.container, byCrun(p))
		if by != agentv1.PartCrun || err != nil {
			t.Errorf("%s for crun: started by %q, %v", name, by, err)
		}
		lines := func(out string) []string { return strings.Split(pipes.ReplaceAllString(out, ""), "\n") }
		if diff := cmp.Diff(lines(theirs), lines(ours)); diff != "" {
			t.Errorf("%s: crun's and the launcher's processes differ:\n%s", name, diff)
		}
	}
	testLaunchErrors(t, g)
	testLaunchEnds(t, g)
}

// testLaunchErrors: a process that cannot run has the same error with both.
func testLaunchErrors(t *testing.T, g *guest) {
	for i, command := range []string{"missing", "/bin/missing", "/bin", "/bin/noexec", "bin/sh", "./bin/sh", "/etc/passwd/x", "tmp/x", "."} {
		for _, change := range []map[string]any{
			nil, {"cwd": "/nowhere"}, {"cwd": "/etc/passwd"}, {"env": []string{"PATH=/etc::/nowhere", "HOME=/"}},
			{"user": map[string]any{"uid": 1, "gid": 1}},
		} {
			for _, container := range []string{"plain", "verbatim", "filtered"} {
				if (change != nil || container != "plain") && i > 4 || change != nil && container != "plain" {
					continue
				}
				p := process(command)
				for key, value := range change {
					p[key] = value
				}
				var said [2]string
				for i, p := range []map[string]any{p, byCrun(p)} {
					_, _, err := g.started(container, p)
					said[i] = strings.ReplaceAll(fmt.Sprint(err), "No such", "no such")
					for _, class := range []error{agentv1.ErrNoCommand, agentv1.ErrNotExec} {
						said[i] += fmt.Sprint(errors.Is(err, class))
					}
				}
				if said[0] != said[1] {
					t.Errorf("%s in %s with %v: %s\nwith crun: %s", command, container, change, said[0], said[1])
				}
			}
		}
	}
	out, e := g.exec("plain", "garbage", process("/bin/garbage"))
	out2, e2 := g.exec("plain", "garbage", byCrun(process("/bin/garbage")))
	if e.Code != 1 || e2.Code != 1 || !strings.Contains(out, "exec /bin/garbage: Exec format error\n") {
		t.Errorf("garbage: %+v %q, with crun %+v %q", e, out, e2, out2)
	}
}

// testLaunchEnds kills the launcher. The pod goes on with crun.
func testLaunchEnds(t *testing.T, g *guest) {
	name := agentv1.Process{Container: "plain", Exec: "long"}
	_, err := g.Exec(g.ctx(), agentv1.Exec{Process: name, Spec: raw(t, process("sleep", "1000"))})
	g.must(err)
	// A container without a process namespace sees the VM's processes.
	g.in("none", `for p in /proc/[0-9]*; do [ "$(cat $p/cmdline | tr -d '\0')" = launcher ] && kill -9 ${p##*/}; done; true`)
	for range 2 {
		if by, _, err := g.started("plain", process("true")); by != agentv1.PartCrun || err != nil {
			t.Errorf("without a launcher: started by %q, %v", by, err)
		}
	}
	if by, out, err := g.created(spec("echo", "hello")); by != agentv1.PartCrun || err != nil || out != "hello\n0" {
		t.Errorf("without a launcher: made by %q, %q, %v", by, out, err)
	}
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: name, Signal: int(unix.SIGTERM)}))
	if e := g.exit(name); e.Signal != int(unix.SIGTERM) {
		t.Errorf("a process of the former launcher: %+v", e)
	}
}
