package clients

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testpty"
)

// scenarios are the common scenarios of podman and docker.
var scenarios = []scenario{
	{name: "run", test: runs},
	{name: "read-only", test: readOnly},
	{name: "exit codes", test: exitCodes},
	{name: "terminal", test: interactive},
	{name: "life", test: life},
	{name: "exec", test: execs},
	{name: "stop", test: stops},
	{name: "files", test: copies},
	{name: "network of a container", test: sharedNetwork},
	{name: "ports", test: ports},
	{name: "volumes", test: volumesOfUsers},
	{name: "limits", test: limited},
	{name: "privileged", test: privileged},
	{name: "documented", test: documented},
}

// runs: run passes streams and the exit code, and leaves nothing with --rm.
func runs(ctx context.Context, t *testing.T, e *engine) {
	o := e.try(ctx, t, "input\n", "run", "--rm", "-i", "--name", "run", "--env", "A=b c", "--workdir", "/tmp",
		"--user", "1000:1000", "--hostname", "named", image, "sh", "-c", "cat; echo $A; pwd; id -u; hostname; exit 7")
	if want := "input\nb c\n/tmp\n1000\nnamed\n"; o.code != 7 || o.out != want || o.stderr != "" {
		t.Errorf("run: %+v, want 7, %q", o, want)
	}
	if got := e.do(ctx, t, "ps", "--all", "--quiet", "--filter", "name=^run$"); got != "" {
		t.Errorf("left by run --rm: %s", got)
	}
	e.start(ctx, t, "background", image, "sh", "-c", "echo out; echo err >&2; exit 3")
	e.expect(ctx, t, 0, "3\n", "wait", "background")
	if o := e.try(ctx, t, "", "logs", "background"); o.out != "out\n" || o.stderr != "err\n" {
		t.Errorf("logs: %+v", o)
	}
}

// readOnly: only tmpfs mounts are writable with --read-only.
func readOnly(ctx context.Context, t *testing.T, e *engine) {
	o := e.try(ctx, t, "", "run", "--rm", "--read-only", "--tmpfs", "/run", image, "sh", "-c", "touch /run/x && echo made; touch /x")
	if o.code != 1 || o.out != "made\n" || !strings.Contains(o.stderr, "/x: Read-only file system") {
		t.Errorf("run: %+v", o)
	}
}

// exitCodes: clients derive the exit codes from the runtime's error texts.
func exitCodes(ctx context.Context, t *testing.T, e *engine) {
	for program, want := range map[string]int{"absent": 127, "/bin/absent": 127, "/etc": 126, "/etc/passwd": 126} {
		if o := e.try(ctx, t, "", "run", "--rm", image, program); o.code != want || !strings.Contains(o.stderr, program) {
			t.Errorf("run %s: %+v, want %d", program, o, want)
		}
	}
	if o := e.try(ctx, t, "", "run", "--rm", image, "sh", "-c", "kill -KILL $$; sleep 1; exit 4"); o.code != 4 { // a first process is immune
		t.Errorf("run of a program that kills itself: %+v", o)
	}
}

// interactive: run and exec with a terminal.
func interactive(ctx context.Context, t *testing.T, e *engine) {
	screen := testpty.New(t, 30, 90)
	before := screen.Modes()
	run := e.command(ctx, "run", "--rm", "--interactive", "--tty", "--name", "terminal", image, "sh")
	e.removeAtEnd(ctx, t, "terminal")
	screen.Start(run)
	screen.Expect("# ")
	screen.Type("stty size; tty; echo $((6*7))\n")
	screen.Expect("30 90\r\n/dev/pts/0\r\n42\r\n")
	screen.Resize(20, 50)
	screen.Type("while test \"$(stty size)\" != '20 50'; do :; done; echo re''sized\n")
	screen.Expect("resized\r\n")

	second := testpty.New(t, 10, 40)
	modes := second.Modes()
	exec := e.command(ctx, "exec", "-it", "terminal", "sh")
	second.Start(exec)
	second.Expect("# ")
	second.Type("sh -c 'echo run''ning; sleep 1000'\n") // the shell itself reads Ctrl-C as a character
	second.Expect("running\r\n")
	second.Type("\x03") // Ctrl-C
	second.Expect("# ")
	second.Type("exit 5\n")
	second.CheckExit(exec, 5, modes)

	screen.Type("exit 6\n")
	screen.CheckExit(run, 6, before)
}

// life: one container from create to its removal, with all that clients ask between.
func life(ctx context.Context, t *testing.T, e *engine) {
	e.removeAtEnd(ctx, t, "life")
	e.do(ctx, t, "create", "--name", "life", image, "sh", "-c",
		"trap 'exit 9' TERM; trap 'echo signal' USR1; echo run >>/runs; echo started; while :; do sleep 0.02; done")
	if got := e.inspect(ctx, t, "life", ".State.Status"); got != "created" {
		t.Errorf("status after create: %s", got)
	}
	logged := func(want string, n int) {
		t.Helper()
		until(ctx, t, want, func() bool { return strings.Count(e.do(ctx, t, "logs", "life"), want) == n })
	}
	e.do(ctx, t, "start", "life")
	logged("started", 1)
	e.do(ctx, t, "kill", "--signal", "USR1", "life")
	logged("signal", 1)

	if top := e.do(ctx, t, "top", "life"); len(strings.Split(top, "\n")) < 2 || !strings.Contains(top, "PID") {
		t.Errorf("top: %s", top)
	}
	stats := e.do(ctx, t, "stats", "--no-stream", "--format", "{{.Name}} {{.PIDs}} {{.MemUsage}}", "life")
	if fields := strings.Fields(stats); len(fields) < 5 || fields[0] != "life" || fields[1] == "0" || strings.HasPrefix(fields[2], "0B") ||
		strings.HasPrefix(fields[4], "0B") {
		t.Errorf("stats: %s", stats)
	}
	e.do(ctx, t, "pause", "life")
	if got := e.inspect(ctx, t, "life", ".State.Status"); got != "paused" {
		t.Errorf("status after pause: %s", got)
	}
	e.do(ctx, t, "unpause", "life")
	e.do(ctx, t, "update", "--memory", "64m", "--memory-swap", "128m", "life")
	if got := e.do(ctx, t, "exec", "life", "sh", "-c", limitsScript); !strings.HasPrefix(got, "67108864\n") {
		t.Errorf("limits after update: %q", got)
	}

	e.do(ctx, t, "stop", "--time", "20", "life")
	if got := e.inspect(ctx, t, "life", ".State.ExitCode"); got != "9" {
		t.Errorf("exit code after stop: %s", got)
	}
	e.do(ctx, t, "start", "life")
	logged("started", 2)
	e.do(ctx, t, "restart", "--time", "20", "life")
	logged("started", 3)
	e.expect(ctx, t, 0, "run\nrun\nrun\n", "exec", "life", "cat", "/runs")
	e.do(ctx, t, "kill", "life")
	if code := e.do(ctx, t, "wait", "life"); code != "137" {
		t.Errorf("exit code after kill: %s", code)
	}
	e.do(ctx, t, "rm", "life")
	if o := e.try(ctx, t, "", "inspect", "life"); o.code == 0 {
		t.Errorf("the removed container: %+v", o)
	}
}

// execs: exec has its own exit code, user, directory and environment.
func execs(ctx context.Context, t *testing.T, e *engine) {
	e.start(ctx, t, "exec", "--env", "OF=container", image, "sleep", "1000")
	o := e.try(ctx, t, "input\n", "exec", "-i", "--user", "1000", "--workdir", "/tmp", "--env", "A=b c", "exec", "sh", "-c",
		"cat; id -u; pwd; echo $A $OF; echo err >&2; exit 11")
	if want := "input\n1000\n/tmp\nb c container\n"; o.code != 11 || o.out != want || o.stderr != "err\n" {
		t.Errorf("exec: %+v, want 11, %q", o, want)
	}
	for program, want := range map[string]int{"absent": 127, "/etc/passwd": 126} {
		// Docker 20.10 says 126 for both.
		if o := e.try(ctx, t, "", "exec", "exec", program); o.code != want && (e.client != "docker" || o.code != 126) {
			t.Errorf("exec %s: %+v, want %d", program, o, want)
		}
	}
	if o := e.try(ctx, t, "", "exec", "exec", "sh", "-c", "kill -KILL $$"); o.code != 137 {
		t.Errorf("exec of a program that kills itself: %+v", o)
	}
	e.do(ctx, t, "exec", "--detach", "exec", "sh", "-c", "echo detached >/detached")
	until(ctx, t, "the detached exec's file", func() bool { return e.try(ctx, t, "", "exec", "exec", "cat", "/detached").out == "detached\n" })
	e.do(ctx, t, "stop", "--time", "0", "exec")
	if o := e.try(ctx, t, "", "exec", "exec", "true"); o.code == 0 {
		t.Errorf("exec in a stopped container: %+v", o)
	}
}

// stops: stop kills a container that does not end.
func stops(ctx context.Context, t *testing.T, e *engine) {
	e.start(ctx, t, "stubborn", image, "sh", "-c", "trap '' TERM; echo started; while :; do sleep 0.02; done")
	// Before its program runs, runc's own process would get the signal.
	until(ctx, t, "the container's log", func() bool { return e.do(ctx, t, "logs", "stubborn") == "started" })
	e.do(ctx, t, "stop", "--time", "1", "stubborn")
	if got := e.inspect(ctx, t, "stubborn", ".State.ExitCode"); got != "137" {
		t.Errorf("exit code of a container that ignores SIGTERM: %s", got)
	}
	e.start(ctx, t, "removed", image, "sleep", "1000")
	e.remove(ctx, t, "removed")
}

// copies: cp works both ways while a container runs and when it has stopped. diff and commit see its files.
func copies(ctx context.Context, t *testing.T, e *engine) {
	dir := e.tempDir(t)
	write(t, filepath.Join(dir, "in/file"), "from the host\n")
	e.start(ctx, t, "files", image, "sh", "-c", "mkdir /made && echo inside >/made/file; rm -f /etc/group; echo started; exec sleep 1000")
	until(ctx, t, "the container's log", func() bool { return e.do(ctx, t, "logs", "files") == "started" })
	e.do(ctx, t, "cp", filepath.Join(dir, "in"), "files:/copied")
	e.expect(ctx, t, 0, "from the host\n", "exec", "files", "cat", "/copied/file")
	e.do(ctx, t, "cp", "files:/made/file", filepath.Join(dir, "running"))
	changes := strings.Split(e.do(ctx, t, "diff", "files"), "\n")
	for _, want := range []string{"A /made", "A /made/file", "A /copied", "A /copied/file", "C /etc", "D /etc/group"} {
		if !slices.Contains(changes, want) {
			t.Errorf("diff lacks %q: %q", want, changes)
		}
	}
	e.do(ctx, t, "commit", "files", "localhost/committed:1")
	t.Cleanup(func() { e.do(context.WithoutCancel(ctx), t, "rmi", "localhost/committed:1") })
	e.expect(ctx, t, 0, "inside\nfrom the host\n", "run", "--rm", "localhost/committed:1", "cat", "/made/file", "/copied/file")

	e.do(ctx, t, "stop", "--time", "0", "files")
	e.do(ctx, t, "cp", "files:/made/file", filepath.Join(dir, "stopped"))
	e.do(ctx, t, "cp", filepath.Join(dir, "in/file"), "files:/made/file")
	for _, name := range []string{"running", "stopped"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "inside\n" {
			t.Errorf("the %s container's file: %q, %v", name, text, err)
		}
	}
	e.do(ctx, t, "start", "files")
	e.expect(ctx, t, 0, "absent\nfrom the host\n", "exec", "files", "sh", "-c", "test -e /etc/group || echo absent; cat /made/file")
}

// sharedNetwork: a container in the network of another one has its addresses and its loopback.
func sharedNetwork(ctx context.Context, t *testing.T, e *engine) {
	e.start(ctx, t, "first", image, "echoserver", "serve", "tcp:80", "udp:81")
	until(ctx, t, "the server's log", func() bool { return e.do(ctx, t, "logs", "first") == "serving" })
	e.start(ctx, t, "second", "--network", "container:first", "--pid", "container:first", image, "sleep", "1000")
	e.expect(ctx, t, 0, "127.0.0.1 hello\n", "exec", "second", "echoserver", "dial", "tcp", "127.0.0.1:80", "hello")
	e.expect(ctx, t, 0, "127.0.0.1 hello\n", "exec", "second", "echoserver", "dial", "udp", "127.0.0.1:81", "hello")
	if got := e.do(ctx, t, "exec", "second", "ps"); !strings.Contains(got, "echoserver serve") {
		t.Errorf("processes with --pid container: %q", got)
	}
	if e.vm {
		if n := vms(t); n != 1 {
			t.Errorf("the two containers have %d VMs, want 1", n)
		}
	}
	e.remove(ctx, t, "second")
	e.do(ctx, t, "restart", "--time", "0", "first")
	until(ctx, t, "the server's second log", func() bool { return e.do(ctx, t, "logs", "first") == "serving\nserving" })
}

// ports: published ports are reached from the host's loopback, from its other addresses and from other hosts.
func ports(ctx context.Context, t *testing.T, e *engine) {
	e.start(ctx, t, "ports", "--publish", "8080:80", "--publish", "8053:53/udp", "--publish", "127.0.0.1:8443:443", image,
		"echoserver", "serve", "tcp:80", "udp:53", "tcp:443")
	for _, address := range []string{"127.0.0.1", outsideOf} {
		dialIn(ctx, t, "tcp", address+":8080")
		dialIn(ctx, t, "udp", address+":8053")
	}
	dialOut(ctx, t, "tcp", outsideOf+":8080", outside)
	dialOut(ctx, t, "udp", outsideOf+":8053", outside)
	dialIn(ctx, t, "tcp", "127.0.0.1:8443")
	if text := connect(outsideOf + ":8443"); text != "" {
		t.Errorf("a port of the loopback answers on another address: %q", text)
	}
	e.do(ctx, t, "restart", "--time", "0", "ports")
	dialOut(ctx, t, "tcp", outsideOf+":8080", outside)
	e.expect(ctx, t, 0, outsideOf+" hello\n", "exec", "ports", "echoserver", "dial", "tcp", outside+":80", "hello")
}

// volumesOfUsers: bind mounts and named volumes work for users other than root, and several containers share them.
func volumesOfUsers(ctx context.Context, t *testing.T, e *engine) {
	dir := t.TempDir()
	own := filepath.Join(dir, "own")
	if err := os.Mkdir(own, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(own, 1000, 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // another user must reach it
		t.Fatal(err)
	}
	e.do(ctx, t, "volume", "create", "named")
	t.Cleanup(func() { e.do(context.WithoutCancel(ctx), t, "volume", "rm", "named") })
	mounts := []string{"--volume", own + ":/own", "--volume", own + ":/readonly:ro", "--volume", "named:/home/demo"}
	run := func(user, script string) outcome {
		return e.try(ctx, t, "", slices.Concat([]string{"run", "--rm", "--user", user}, mounts, []string{image, "sh", "-c", script})...)
	}
	o := run("1000:1000", "echo one >/own/file; echo two >/home/demo/file; touch /readonly/x")
	if o.code != 1 || !strings.Contains(o.stderr, "Read-only file system") {
		t.Errorf("the owner writes: %+v", o)
	}
	o = run("1001:1001", "cat /home/demo/file; cat /own/file")
	if o.code != 1 || o.out != "two\n" || !strings.Contains(o.stderr, "Permission denied") {
		t.Errorf("another user reads: %+v", o)
	}
	var info unix.Stat_t
	if err := unix.Stat(filepath.Join(own, "file"), &info); err != nil || info.Uid != 1000 || info.Gid != 1000 {
		t.Errorf("the file on the host: owner %d, group %d, %v", info.Uid, info.Gid, err)
	}
}

// limited: limits are in force, and a program that takes too much memory is killed.
func limited(ctx context.Context, t *testing.T, e *engine) {
	o := e.try(ctx, t, "", "run", "--rm", "--memory", "64m", "--cpus", "0.5", "--pids-limit", "50", image, "sh", "-c", limitsScript)
	if o.out != "67108864\n50\n50\n" {
		t.Errorf("limits: %+v", o)
	}
	e.removeAtEnd(ctx, t, "eater")
	o = e.try(ctx, t, "", "run", "--name", "eater", "--memory", "32m", "--memory-swap", "32m", image, "sh", "-c", eater)
	if o.code != 137 {
		t.Errorf("a program that takes too much memory: %+v", o)
	}
	// conmon 2.1.6 of Debian 12 does not notice it here. With a VM, the kill happens in the guest. Conmon and runc's shim watch
	// the host, and Bulkhead's shim watches the guest.
	notices := e.name == front || !e.vm && (e.client == "docker" || e.root != "/")
	if got := e.inspect(ctx, t, "eater", ".State.OOMKilled"); got != strconv.FormatBool(notices) {
		t.Errorf("OOMKilled: %s", got)
	}
}

// privileged: --privileged lets a container mount, and shows it devices. In a VM they are the guest's, with the VM's own
// disks, and not the host's.
func privileged(ctx context.Context, t *testing.T, e *engine) {
	o := e.try(ctx, t, "", "run", "--rm", "--privileged", image, "sh", "-c",
		"mkdir /m && mount -t tmpfs none /m && grep -c ' /m ' /proc/mounts; cat /sys/block/vda/size; ls /dev | grep ^vd")
	if !e.vm && e.client == "docker" && o.code == 125 && strings.Contains(o.stderr, "unable to apply caps: operation not permitted") {
		return // this host's root lacks capabilities, and runc cannot give them
	}
	mounted, rest, _ := strings.Cut(o.out, "\n")
	if mounted != "1" {
		t.Errorf("a mount with --privileged: %+v", o)
	}
	size, disks, _ := strings.Cut(rest, "\n")
	if want := "vda vdb vdc vdd vde vdf vdg vdh vdi vdj vdk vdl"; e.vm && strings.Join(strings.Fields(disks), " ") != want {
		t.Errorf("the disks %q, want the VM's, %s", disks, want)
	}
	if host, err := os.ReadFile("/sys/block/vda/size"); err == nil && e.vm == (size+"\n" == string(host)) {
		t.Errorf("the disk has %s sectors, and the host's %s", size, host)
	}
}
