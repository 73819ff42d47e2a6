package agent_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// out runs a process in a container and returns its output.
func (g *guest) out(container string, p map[string]any) string {
	g.t.Helper()
	out, _ := g.exec(container, "out", p)
	return out
}

// in runs a command in a container, which must succeed, and returns its output.
func (g *guest) in(container, command string) string {
	g.t.Helper()
	out, e := g.exec(container, "in", process("sh", "-c", command))
	if e.Code != 0 {
		g.t.Errorf("%s: %s: exit %+v, %q", container, command, e, out)
	}
	return out
}

// testOwn: containers with IPC and UTS namespaces of their own, with another container's, and with the VM's.
func testOwn(t *testing.T, tm *template) {
	g := tm.start(t)
	all := func(name string, namespace ...string) map[string]any {
		s := change(spec("sleep", "1000"), namespaces(append(namespace, "pid", "mount", "network")...), "linux", "namespaces")
		if name != "" {
			s["hostname"], s["domainname"] = name, "d"+name
		}
		for i, m := range s["mounts"].([]any) {
			if name != "" && m.(map[string]any)["destination"] == "/dev/shm" {
				s["mounts"].([]any)[i] = mount("/dev/shm", "tmpfs", "shm", "nosuid", "noexec", "nodev", "mode=1777", "size=1048576")
			}
		}
		s["mounts"] = append(s["mounts"].([]any), mount("/dev/mqueue", "mqueue", "mqueue", "nosuid", "noexec", "nodev"))
		return s
	}
	g.launch("pod", all(""))
	one := all("one", "ipc", "uts")
	change(one, map[string]any{"kernel.shmmni": "77", "fs.mqueue.queues_max": "33", "net.ipv4.ip_forward": "1"}, "linux", "sysctl")
	g.launch("one", one)
	g.launch("two", all("two", "ipc", "uts"))
	g.launch("joined", all("", "ipc=bulkhead.container:one", "uts=bulkhead.container:one"))
	g.launch("shared", all("", "ipc=bulkhead.pod", "uts=bulkhead.pod"))
	const look = `hostname; cd /proc/sys; cat kernel/domainname kernel/shmmni fs/mqueue/queues_max net/ipv4/ip_forward`
	for name, want := range map[string]string{
		"pod": "pod-one\n(none)\n4096\n256\n1\n", "one": "one\ndone\n77\n33\n1\n", "two": "two\ndtwo\n4096\n256\n1\n",
		"joined": "one\ndone\n77\n33\n1\n", "shared": "pod-one\n(none)\n4096\n256\n1\n",
	} {
		if got := g.in(name, look); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		g.in(name, "echo "+name+" >/dev/shm/"+name+"; mkdir -p /tmp/q; touch /dev/mqueue/"+name)
	}
	// Shared memory is the mount's, message queues are the namespace's.
	for name, want := range map[string]string{
		"pod": "joined pod shared - pod shared", "one": "one - joined one", "two": "two - two",
		"joined": "joined pod shared - joined one", "shared": "joined pod shared - pod shared",
	} {
		if got := strings.TrimSpace(g.in(name, "echo $(ls /dev/shm) - $(ls /dev/mqueue)")); got != want {
			t.Errorf("%s has %q, want %q", name, got, want)
		}
	}
	if got := g.in("one", "df -k /dev/shm | tail -n 1"); !strings.Contains(got, " 1024 ") {
		t.Errorf("size of its own shared memory: %q", got)
	}
	if out, e := g.exec("one", "x", process("dd", "if=/dev/zero", "of=/dev/shm/big", "bs=1M", "count=2")); e.Code == 0 {
		t.Errorf("the size of shared memory does not hold: %q", out)
	}
	for kind, class := range map[string]error{
		"user": errdefs.ErrNotImplemented, "time": errdefs.ErrNotImplemented, "moon": errdefs.ErrInvalidArgument,
		"ipc=/proc/1/ns/ipc":          errdefs.ErrNotImplemented,
		"uts=bulkhead.container:none": errdefs.ErrNotFound,
	} {
		name, _, _ := strings.Cut(kind, "=")
		err := g.tryCreate("bad", all("", kind))
		if !errors.Is(err, class) || !strings.Contains(err.Error(), `linux.namespaces: type "`+name+`"`) {
			t.Errorf("namespace %s: %v", kind, err)
		}
	}
	// In the VM's process namespace, a container's processes end with its first one.
	loose := agentv1.Process{Container: "loose"}
	g.launch("loose", change(spec("sh", "-c", "sleep 1000 & echo started; exit 3"), namespaces("mount"), "linux", "namespaces"))
	if out, e := g.read(loose, "stdout"), g.exit(loose); out != "started\n" || e.Code != 3 {
		t.Errorf("a container without a process namespace: %q, %+v", out, e)
	}
	conflict := change(all("x", "uts"), map[string]any{"kernel.domainname": "y"}, "linux", "sysctl")
	if err := g.tryCreate("bad", conflict); err == nil || !strings.Contains(err.Error(), "domainname") {
		t.Errorf("two domain names: %v", err)
	}
}

// verbatim is a specification of an OCI client: the container has nothing else.
func verbatim(args ...string) map[string]any {
	return change(spec(args...), map[string]any{agentv1.Verbatim: "true"}, "annotations")
}

// testVerbatim: a container and its exec'd processes have the contents of their specification, and nothing more.
func testVerbatim(t *testing.T, tm *template) {
	g := tm.start(t)
	user := map[string]any{"uid": 1234, "gid": 77, "additionalGids": []int{5, 6}, "umask": 0o027}
	run := func(command ...string) map[string]any {
		p := process(command...)
		p["user"], p["cwd"], p["env"] = user, "/made/deep", []string{"PATH=/bin", "B=2", "A=1", "B=3"}
		return p
	}
	const look = "pwd; umask; id -u; id -g; id -G; [ -e /dev/termination-log ]; echo $?; ls /etc"
	const want = "/made/deep\n0027\n1234\n77\n77 5 6\n1\ngroup\npasswd\n"
	s := change(verbatim(), run("sh", "-c", look), "process")
	g.launch("look", s)
	if got := g.read(agentv1.Process{Container: "look"}, "stdout"); got != want {
		t.Errorf("the container has %q, want %q", got, want)
	}
	const variables = "PATH=/bin\nB=3\nA=1\nHOME=/\n"
	g.launch("env", change(verbatim(), run("env"), "process"))
	if got := g.read(agentv1.Process{Container: "env"}, "stdout"); got != variables {
		t.Errorf("its environment is %q, want %q", got, variables)
	}
	g.launch("c", change(verbatim(), run("sleep", "1000"), "process"))
	if got, e := g.exec("c", "look", run("sh", "-c", look)); got != want {
		t.Errorf("a process has %q, %+v, want %q", got, e, want)
	}
	bare := process("env")
	delete(bare, "env")
	bare["args"] = []string{"/bin/env"}
	if got, e := g.exec("c", "env", bare); got != "HOME=/root\n" {
		t.Errorf("the environment of a process without one is %q, %+v", got, e)
	}
}

// testHooks: crun runs the startContainer hooks inside the container, in order, before its process.
func testHooks(t *testing.T, tm *template) {
	g := tm.start(t)
	hook := func(script string, more ...any) map[string]any {
		h := map[string]any{"path": "/bin/sh", "args": []string{"sh", "-c", script}}
		for i := 0; i < len(more); i += 2 {
			h[more[i].(string)] = more[i+1]
		}
		return h
	}
	hooked := func(command string, hooks ...any) map[string]any {
		s := change(verbatim("sh", "-c", command), map[string]any{"startContainer": hooks}, "hooks")
		return change(s, "v", "annotations", "k")
	}
	s := hooked("cat /tmp/said; echo started",
		hook("cat >/tmp/state; echo first $HOOK $0 >>/tmp/said; echo lost; id -u >>/tmp/said", "env", []string{"PATH=/bin", "HOOK=env"}),
		hook("echo second $B $HOOK $(hostname) >>/tmp/said"))
	s["process"].(map[string]any)["env"] = []string{"PATH=/bin", "B=container's"}
	s["process"].(map[string]any)["user"] = map[string]any{"uid": 1000, "gid": 1000}
	g.launch("c", s)
	c := agentv1.Process{Container: "c"}
	if got, want := g.read(c, "stdout"), "first env sh\n1000\nsecond container's pod-one\nstarted\n"; got != want {
		t.Errorf("hooks: %q, want %q; %q", got, want, g.read(c, "stderr"))
	}
	// A hook waits for the start.
	g.create("waits", hooked("cat /tmp/state", hook("cat >/tmp/state")))
	waits := agentv1.Process{Container: "waits"}
	g.must(g.Start(g.ctx(), waits))
	var state struct {
		ID, Status, Bundle string
		Annotations        map[string]string
	}
	if text := g.read(waits, "stdout"); json.Unmarshal([]byte(text), &state) != nil || state.ID != "waits" || state.Bundle == "" ||
		state.Annotations["k"] != "v" || len(state.Annotations) != 1 {
		t.Errorf("the state of a hook: %s", text)
	}
	for name, h := range map[string]map[string]any{
		"fails": hook("exit 3"), "is missing": {"path": "/bin/none"}, "hangs": hook("exec sleep 1000", "timeout", 1),
	} {
		name = strings.ReplaceAll(name, " ", "-")
		g.launch(name, hooked("echo started", h))
		p := agentv1.Process{Container: name}
		if e, out, says := g.exit(p), g.read(p, "stdout"), g.read(p, "stderr"); e.Code == 0 || out != "" || says == "" {
			t.Errorf("a hook that %s: %+v, %q, %q", name, e, out, says)
		}
	}
	if err := g.tryCreate("bad", change(verbatim("true"), []any{hook("true")}, "hooks", "poststart")); !errors.Is(err,
		errdefs.ErrInvalidArgument) {
		t.Errorf("a hook of the host: %v", err)
	}
}

// testWords: a command that cannot run fails a container's creation and an exec in the words of runc.
func testWords(t *testing.T, tm *template) {
	g := tm.start(t)
	g.launch("c", verbatim("sleep", "1000"))
	in := func(cwd string) map[string]any {
		p := process("true")
		p["cwd"] = cwd
		return p
	}
	for name, tc := range map[string]struct {
		process map[string]any
		class   error // of an exec
		says    string
		created bool // at a container's creation
	}{
		"missing": {
			process("/bin/missing"), agentv1.ErrNoCommand, `exec: "/bin/missing": stat /bin/missing: no such file or directory`, false,
		},
		"not found":  {process("missing"), agentv1.ErrNoCommand, `exec: "missing": executable file not found in $PATH`, false},
		"no exec":    {process("/bin/noexec"), agentv1.ErrNotExec, `exec: "/bin/noexec": permission denied`, false},
		"directory":  {process("/bin"), agentv1.ErrNotExec, `exec: "/bin": permission denied`, false},
		"below file": {process("/etc/passwd/x"), agentv1.ErrNotExec, `exec: "/etc/passwd/x": not a directory`, false},
		"empty":      {process(""), agentv1.ErrNoCommand, "process has no command", false},
		"directory missing": {
			in("/none"), nil, `chdir to cwd ("/none") set in config.json failed: no such file or directory`, true,
		},
		"no directory": {in("/etc/passwd"), nil, `chdir to cwd ("/etc/passwd") set in config.json failed: not a directory`, false},
	} {
		x := agentv1.Process{Container: "c", Exec: "x"}
		_, err := g.Exec(g.ctx(), agentv1.Exec{Process: x, Spec: raw(t, tc.process)})
		var said *agentv1.Error
		if !errors.As(err, &said) || tc.class != nil && !errors.Is(err, tc.class) || !strings.Contains(said.Message, tc.says) {
			t.Errorf("exec %s: %v, want %s", name, err, tc.says)
		}
		err = g.tryCreate("new", change(verbatim(), tc.process, "process"))
		if err == nil {
			g.Delete(g.ctx(), agentv1.Process{Container: "new"})
		}
		wrong := tc.class != nil && !errors.Is(err, errdefs.ErrInvalidArgument)
		if tc.created != (err == nil) || err != nil && (wrong || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("create %s: %v, want %s", name, err, tc.says)
		}
	}
}

// testExecDetails: a process in a container has its own groups, capabilities, limits, privileges and terminal, and can
// be signalled.
func testExecDetails(t *testing.T, tm *template) {
	g := tm.start(t)
	s := verbatim("sh", "-c", "trap 'echo got' USR1; echo ready; while :; do sleep 0.1; done")
	limit := func(kind string, n int) []any { return []any{map[string]any{"type": kind, "soft": n, "hard": n}} }
	change(s, limit("RLIMIT_NOFILE", 77), "process", "rlimits")
	g.launch("c", s)
	const look = `id -G; ulimit -n; ulimit -c; grep -E "CapBnd|NoNewPrivs" /proc/self/status`
	p := process("sh", "-c", look)
	if got, want := g.out("c", p), "0\n77\n0\nCapBnd:\t0000000000000020\nNoNewPrivs:\t0\n"; got != want {
		t.Errorf("a plain process: %q, want %q", got, want)
	}
	change(p, []int{7, 8}, "user", "additionalGids")
	change(p, []string{"CAP_KILL", "CAP_CHOWN"}, "capabilities", "bounding")
	p["rlimits"], p["noNewPrivileges"] = limit("RLIMIT_CORE", 5120), true
	if got, want := g.out("c", p), "0 7 8\n1048576\n10\nCapBnd:\t0000000000000021\nNoNewPrivs:\t1\n"; got != want {
		t.Errorf("another process: %q, want %q", got, want)
	}
	run := func(id string, p map[string]any, change ...func(*agentv1.Exec)) agentv1.Process {
		t.Helper()
		x := agentv1.Exec{Process: agentv1.Process{Container: "c", Exec: id}, Spec: raw(t, p)}
		for _, f := range change {
			f(&x)
		}
		_, err := g.Exec(g.ctx(), x)
		g.must(err)
		return x.Process
	}
	sized := process("sh", "-c", "stty size; tty")
	sized["consoleSize"], sized["user"] = map[string]any{"height": 9, "width": 33}, map[string]any{"uid": 1000, "gid": 5}
	tty := run("tty", sized, func(x *agentv1.Exec) { x.Terminal = true })
	if got := g.read(tty, "stdout"); got != "9 33\r\n/dev/pts/0\r\n" {
		t.Errorf("a terminal: %q", got)
	}
	// A signal reaches one process, or all.
	trap := process("sh", "-c", "trap 'echo exec got' USR1; trap 'exit 9' TERM; echo ready; while :; do sleep 0.1; done")
	one, two := run("one", trap), run("two", trap)
	c := agentv1.Process{Container: "c"}
	for _, p := range []agentv1.Process{c, one, two} {
		g.until(p, "stdout", "ready\n")
	}
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: one, Signal: int(unix.SIGTERM)}))
	if e := g.exit(one); e.Code != 9 || e.Signal != 0 {
		t.Errorf("a signalled process: %+v", e)
	}
	if err := g.Signal(g.ctx(), agentv1.Signal{Process: one, Signal: int(unix.SIGTERM)}); !errors.Is(err, errdefs.ErrNotFound) {
		t.Errorf("a signal to a process that has ended: %v", err)
	}
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: c, Signal: int(unix.SIGUSR1), All: true}))
	g.until(c, "stdout", "got\n")
	g.until(two, "stdout", "exec got\n")
	g.must(g.Signal(g.ctx(), agentv1.Signal{Process: c, Signal: int(unix.SIGKILL), All: true}))
	for _, p := range []agentv1.Process{c, two} {
		if e := g.exit(p); e.Code != 137 || e.Signal != 9 {
			t.Errorf("%v after a kill of all: %+v", p, e)
		}
	}
}
