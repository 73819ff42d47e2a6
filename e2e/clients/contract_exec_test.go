package clients

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var execCases = []contractCase{
	{"exec detached", execProcess},
	{"exec in the foreground", execForeground},
	{"exec flags", execFlags},
	{"exec does not hold others", execHangs},
	{"exec ends with its container", execEnds},
	{"exec failures", execFailures},
	{"many execs at once", execMany},
}

// execDetached starts a process as conmon and containerd's shim do.
func (c *contract) execDetached(ctx context.Context, t *testing.T, id string, p *specs.Process, flags ...string) *process {
	t.Helper()
	dir := t.TempDir()
	pidFile, document, log := filepath.Join(dir, "pid"), filepath.Join(dir, "process.json"), filepath.Join(dir, "log")
	writeJSON(t, document, p)
	command := append([]string{"exec", "--pid-file", pidFile, "--process", document, "--detach"}, flags...)
	e, code := startMonitored(ctx, t, pidFile, nil, c.args(log, append(command, id)...)...)
	if code != 0 {
		t.Fatalf("exec: exit code %d: %s%s", code, e.stderr.text(), lastLogged(t, log))
	}
	return e
}

// execProcess: a detached exec leaves a process of its own, which has the exec's streams and exit status.
func execProcess(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", newSpec("sleep", "1000"))
	p := newSpec("sh", "-c", "cat; id -u; id -g; pwd; echo $A; echo err >&2; exit 11").Process
	p.User, p.Cwd, p.Env = specs.User{UID: 1000, GID: 2000}, "/tmp", append(p.Env, "A=b c")
	e := c.execDetached(ctx, t, "c", p)
	if e.pid == k.pid {
		t.Errorf("the exec's process is the container's, %d", e.pid)
	}
	if ns, want := namespace(t, e.pid, "mnt"), namespace(t, k.pid, "mnt"); ns != want {
		t.Errorf("the exec's mount namespace is %s, and the container's %s", ns, want)
	}
	if _, err := e.stdin.WriteString("input\n"); err != nil {
		t.Fatal(err)
	}
	e.stdin.Close()
	e.expectExit(ctx, t, 11)
	if got, want := e.stdout.all(ctx, t), "input\n1000\n2000\n/tmp\nb c\n"; got != want {
		t.Errorf("standard output %q, want %q", got, want)
	}
	if got := e.stderr.all(ctx, t); got != "err\n" {
		t.Errorf("standard error %q", got)
	}
	killed := c.execDetached(ctx, t, "c", newSpec("sh", "-c", "kill -9 $$").Process)
	killed.expectSignal(ctx, t, unix.SIGKILL)
}

// execForeground: without --detach, exec passes the streams and returns the exit code.
func execForeground(ctx context.Context, t *testing.T, c *contract) {
	c.start(ctx, t, "c", newSpec("sleep", "1000"))
	r := c.runInput(ctx, t, "input\n", "exec", "c", "sh", "-c", "cat; echo err >&2; exit 13")
	if r.code != 13 || r.stdout != "input\n" || r.stderr != "err\n" {
		t.Errorf("exec: %d, %q, %q", r.code, r.stdout, r.stderr)
	}
	document := filepath.Join(c.dir, "process.json") // CRI-O
	writeJSON(t, document, newSpec("sh", "-c", "exit 14").Process)
	if r := c.run(ctx, t, "exec", "--process", document, "c"); r.code != 14 {
		t.Errorf("exec --process: %d: %s", r.code, r.stderr)
	}
	if r := c.run(ctx, t, "exec", "c", "sh", "-c", "kill -TERM $$"); r.code != 128+int(unix.SIGTERM) {
		t.Errorf("exec of a program that a signal ends: %d", r.code)
	}
}

// execFlags: flags change the process. Without them it is like the container's.
func execFlags(ctx context.Context, t *testing.T, c *contract) {
	spec := newSpec("sleep", "1000")
	spec.Process.Env = append(spec.Process.Env, "OF=container")
	spec.Process.Cwd = "/etc"
	c.start(ctx, t, "c", spec)
	for _, e := range []struct {
		flags []string
		text  string
		want  string
	}{
		{nil, "pwd; id -u; echo $OF", "/etc\n0\ncontainer\n"},
		{[]string{"--cwd", "/tmp"}, "pwd", "/tmp\n"},
		{[]string{"--user", "1000:2000"}, "id -u; id -g", "1000\n2000\n"},
		{[]string{"-u", "1000"}, "id -u; id -g", "1000\n0\n"},
		{[]string{"-e", "A=b", "-e", "C=d e"}, "echo $A; echo $C; echo $OF", "b\nd e\ncontainer\n"},
		{[]string{"-g", "7", "-g", "8"}, "id -G", "0 7 8\n"},
		{[]string{"--no-new-privs"}, "grep NoNewPrivs /proc/self/status", "NoNewPrivs:\t1\n"},
		{[]string{"--cap", "CAP_SYS_TIME"}, "grep CapBnd /proc/self/status", mask(t, append(slices.Clone(capabilities), "CAP_SYS_TIME"))},
	} {
		got := c.do(ctx, t, append(append([]string{"exec"}, e.flags...), "c", "sh", "-c", e.text)...)
		if got != e.want {
			t.Errorf("exec %s: %q, want %q", strings.Join(e.flags, " "), got, e.want)
		}
	}
}

// execHangs: an exec that does not end holds no other call.
func execHangs(ctx context.Context, t *testing.T, c *contract) {
	c.start(ctx, t, "c", newSpec("sleep", "1000"))
	hung := c.execDetached(ctx, t, "c", newSpec("sh", "-c", "echo started; sleep 1000").Process)
	hung.stdout.await(ctx, t, "started")
	if got := c.exec(ctx, t, "c", "echo other"); got != "other\n" {
		t.Errorf("another exec: %q", got)
	}
	c.state(ctx, t, "c")
	c.do(ctx, t, "kill", "c", "KILL")
	hung.expectSignal(ctx, t, unix.SIGKILL)
}

// execEnds: the end of the container ends its execs, and the death of an exec's process ends only that exec.
func execEnds(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", script("read line; exit 0"))
	sleep := newSpec("sh", "-c", "echo started; sleep 1000").Process
	one, two := c.execDetached(ctx, t, "c", sleep), c.execDetached(ctx, t, "c", sleep)
	one.stdout.await(ctx, t, "started")
	two.stdout.await(ctx, t, "started")
	if err := unix.Kill(one.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	one.expectSignal(ctx, t, unix.SIGKILL)
	until(ctx, t, "the end of the killed exec", func() bool { return strings.Count(c.exec(ctx, t, "c", "ps"), "sleep 1000") < 2 })
	k.stdin.Close()
	k.expectExit(ctx, t, 0)
	two.expectSignal(ctx, t, unix.SIGKILL)
}

// execFailures: podman makes exit code 126 or 127 of these texts, and docker shows them.
func execFailures(ctx context.Context, t *testing.T, c *contract) {
	c.start(ctx, t, "c", newSpec("sleep", "1000"))
	for program, want := range map[string]string{
		"absent":      `exec: "absent": executable file not found in $PATH`,
		"/bin/absent": `exec: "/bin/absent": stat /bin/absent: no such file or directory`,
		"/etc":        `exec: "/etc": permission denied`,
		"/etc/text":   `exec: "/etc/text": permission denied`,
	} {
		c.fails(ctx, t, 255, want, "exec", "c", program)
	}
	noDir := `chdir to cwd ("/absent") set in config.json failed: no such file or directory`
	c.fails(ctx, t, 255, noDir, "exec", "--cwd", "/absent", "c", "true")
	if err := os.WriteFile(filepath.Join(c.dir, "broken"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := c.run(ctx, t, "exec", "--process", filepath.Join(c.dir, "broken"), "c"); r.code == 0 || r.logged == "" {
		t.Errorf("a broken document: %+v", r)
	}
}

// execMany: concurrent execs do not disturb one another.
func execMany(ctx context.Context, t *testing.T, c *contract) {
	c.start(ctx, t, "c", newSpec("sleep", "1000"))
	var all []*process
	for i := range 10 {
		all = append(all, c.execDetached(ctx, t, "c", newSpec("sh", "-c", fmt.Sprintf("read l; echo %d; exit %d", i, i+1)).Process))
	}
	for i, e := range all {
		e.stdin.Close()
		e.expectExit(ctx, t, i+1)
		if got, want := e.stdout.all(ctx, t), fmt.Sprintln(i); got != want {
			t.Errorf("exec %d: %q", i, got)
		}
	}
}
