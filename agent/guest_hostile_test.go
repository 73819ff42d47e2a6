package agent_test

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// testTasks: a fork bomb in a container disturbs neither the agent nor the pod's other containers.
func testTasks(t *testing.T, tm *template) {
	g := tm.start(t, func(c *agentv1.Configure) { c.Sysctls = map[string]string{"kernel.threads-max": "400"} })
	g.launch("good", spec("sleep", "1000"))
	bad := agentv1.Process{Container: "bad"}
	g.launch("bad", spec("sh", "-c", "(while :; do sleep 1000 & done) 2>/dev/null; echo full; exec sleep 1000"))
	g.until(bad, "stdout", "full\n")
	stats, err := g.Stats(g.ctx(), bad)
	if err != nil || stats.Pids < 100 || stats.Pids > 272-64 {
		t.Errorf("the bomb has %d processes, %v", stats.Pids, err)
	}
	if out, e := g.exec("good", "x", process("sh", "-c", "echo alive")); out != "alive\n" || e.Code != 0 {
		t.Errorf("another container: %q, %+v", out, e)
	}
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: bad, Signal: int(unix.SIGKILL), All: true}))
	if e := g.exit(bad); e.Code != 137 {
		t.Errorf("exit = %+v", e)
	}
	if _, err := g.Delete(g.ctx(), bad); err != nil {
		t.Error(err)
	}
}

// testRoom: a container that fills the files shared with the agent disturbs neither the agent nor containers, old and
// new.
func testRoom(t *testing.T, tm *template) {
	g := tm.start(t)
	g.launch("bad", spec("sleep", "1000"))
	for _, file := range []string{"/etc/hosts", "/etc/resolv.conf", "/dev/shm/x"} {
		if out, e := g.exec("bad", "x", process("dd", "if=/dev/zero", "of="+file, "bs=1M", "count=1000")); e.Code == 0 {
			t.Errorf("%s fills the file system: %q", file, out)
		}
	}
	if out, e := g.exec("bad", "x", process("echo", "alive")); out != "alive\n" || e.Code != 0 {
		t.Errorf("exec: %q, %+v", out, e)
	}
	g.launch("good", spec("true"))
	if e := g.exit(agentv1.Process{Container: "good"}); e.Code != 0 {
		t.Errorf("another container: %+v", e)
	}
}

// testDevices: each container may use only the devices of its own rules, even if an earlier container had the same
// rules.
func testDevices(t *testing.T, tm *template) {
	g := tm.start(t)
	rule := func(allow bool, kind string, minor int, access string) map[string]any {
		r := map[string]any{"allow": allow, "access": access}
		if kind != "" {
			r["type"] = kind
		}
		if minor > 0 {
			r["major"], r["minor"] = 1, minor
		}
		return r
	}
	ordinary := []any{rule(false, "", 0, "rwm"), rule(true, "c", 0, "m"), rule(true, "c", 3, "rwm")}
	const log = 11 // the kernel's
	for round := range 2 {
		for name, tc := range map[string]struct {
			rules []any
			want  string
		}{
			"ordinary": {ordinary, "null\n"},
			"wider":    {append(ordinary[:len(ordinary):len(ordinary)], rule(true, "c", log, "rwm")), "log\nnull\n"},
			"reading":  {append(ordinary[:len(ordinary):len(ordinary)], rule(true, "c", log, "r")), "null\n"},
			"none":     {nil, "log\nnull\n"},
		} {
			s := spec("sh", "-c", "mknod /dev/log c 1 11; echo x >/dev/log && echo log; echo x >/dev/null && echo null")
			caps := []string{"CAP_MKNOD"}
			s["process"].(map[string]any)["capabilities"] = map[string]any{"bounding": caps, "effective": caps, "permitted": caps}
			if tc.rules != nil {
				s["linux"].(map[string]any)["resources"] = map[string]any{"devices": tc.rules}
			}
			c := agentv1.Process{Container: name}
			g.launch(name, s)
			if got := g.read(c, "stdout"); got != tc.want {
				t.Errorf("round %d, %s rules: %q instead of %q, %s", round, name, got, tc.want, g.read(c, "stderr"))
			}
			g.exit(c)
			_, err := g.Delete(g.ctx(), c)
			g.must(err)
		}
	}
}

// testFiltered: every process of a container has its seccomp filter and exactly its capabilities. That includes later
// processes, and containers with a filter that crun has compiled before.
func testFiltered(t *testing.T, tm *template) {
	g := tm.start(t)
	for _, id := range []string{"first", "second"} {
		s := spec("sleep", "1000")
		s["linux"].(map[string]any)["seccomp"] = map[string]any{
			"defaultAction": "SCMP_ACT_ALLOW",
			"syscalls":      []any{map[string]any{"names": []string{"mkdir", "mkdirat"}, "action": "SCMP_ACT_ERRNO"}},
		}
		g.launch(id, s)
		const look = `mkdir /tmp/x && echo made; grep -E "Seccomp:|CapBnd|CapEff|NoNewPrivs" /proc/self/status`
		const want = "CapEff:\t0000000000000020\nCapBnd:\t0000000000000020\nNoNewPrivs:\t1\nSeccomp:\t2\n"
		p := process("sh", "-c", look)
		p["noNewPrivileges"] = true
		out, _ := g.exec(id, "look", p)
		if out, _, _ = strings.Cut(out, "mkdir: "); out != want {
			t.Errorf("%s: %q instead of %q", id, out, want)
		}
		delete(p, "capabilities") // default to the container's first process
		if out, _ := g.exec(id, "again", p); !strings.Contains(out, want) {
			t.Errorf("%s: %q instead of %q", id, out, want)
		}
	}
}
