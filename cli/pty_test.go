package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testpty"
)

// terminal is a terminal for the user's commands.
type terminal struct {
	*testpty.Terminal
	t *testing.T
}

func newTerminal(t *testing.T, rows, columns uint16) *terminal {
	t.Helper()
	return &terminal{Terminal: testpty.New(t, rows, columns), t: t}
}

// start runs a command of the user on the terminal.
func (p *terminal) start(u *user, args ...string) *exec.Cmd {
	p.t.Helper()
	args = append(append(append([]string{}, u.prefix...), filepath.Join(os.Getenv("BULKHEAD_LIBEXEC"), "bulkhead")), args...)
	ctx, cancel := context.WithTimeout(p.t.Context(), 90*time.Second)
	p.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env = "/", append([]string{"TERM=xterm"}, u.env...)
	p.Start(cmd)
	return cmd
}

// TestTerminal uses a terminal: a shell in a pod, the output of several containers, Ctrl-C once and twice, and the
// bars of a pull.
func TestTerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	u := newUser(t, nil)
	u.loadBusybox()
	t.Run("exec", func(t *testing.T) { testShell(t, u) })
	t.Run("attach", func(t *testing.T) { testAttach(t, u) })
	t.Run("debug", func(t *testing.T) { testDebug(t, u) })
	t.Run("top", func(t *testing.T) { testTop(t, u) })
	t.Run("run", func(t *testing.T) { testForeground(t, u) })
	t.Run("load", testBars)
}

func testShell(t *testing.T, u *user) {
	p := newTerminal(t, 40, 100)
	before := p.Modes()
	// The first pod builds its template, which takes a while and is reported.
	run := p.start(u, "run", "-d", write(t, manifest(busybox, "[sleep, '1000']", "")))
	p.Expect(`booting a VM to clone pods from, [a-z, ]+ …\x1b\[K\r\n`)
	p.Expect(`\x1b\[1A\x1b\[J`)
	p.Expect(`bad\r\n`)
	p.CheckExit(run, 0, before)
	defer u.must("", "rm", "-f", "bad")
	const prompt = `# (\x1b\[\w+)*$` // with the sequences that it sends

	shell := p.start(u, "exec", "-it", "bad", "--", "sh")
	p.Expect(prompt)
	p.Type("stty size; tty; echo $TERM\r")
	p.Expect(`40 100\r\n/dev/pts/0\r\nxterm\r\n`)
	p.Expect(prompt)
	p.Resize(24, 81)
	// The new size travels beside the typed keys: ask until it arrives.
	p.Type("until [ \"$(stty size)\" = '24 81' ]; do sleep 0.1; done; echo re''sized\r")
	p.Expect(`resized\r\n`)
	p.Type("sh -c 'echo sl''eeping; sleep 1000'\r")
	p.Expect("sleeping\r\n")
	p.Type("\x03") // goes to the pod, not to the command
	p.Expect(`\^C`)
	p.Expect(prompt)
	p.Type("exit 4\r")
	p.CheckExit(shell, 4, before)

	shell = p.start(u, "exec", "-it", "bad", "--", "sh")
	p.Expect(prompt)
	if err := shell.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.CheckExit(shell, 143, before)

	shell = p.start(u, "exec", "-it", "bad", "--", "sh")
	p.Expect(prompt)
	u.must("", "stop", "-t", "0", "bad")
	p.CheckExit(shell, 137, before)
}

// testAttach attaches to a shell that is a container's first process, detaches by the keys, attaches again and ends
// the shell.
func testAttach(t *testing.T, u *user) {
	u.must(manifest(busybox, "[sh]", "    stdin: true\n    tty: true\n"), "run", "-d", "--quiet", "-")
	defer u.must("", "rm", "-f", "bad")
	p := newTerminal(t, 40, 100)
	before := p.Modes()

	shell := p.start(u, "attach", "-it", "bad")
	p.Type("kept=here; stty size\r")
	p.Expect(`40 100\r\n`)
	p.Type("\x10\x11")
	p.Expect("detached")
	p.CheckExit(shell, 0, before)

	shell = p.start(u, "attach", "-it", "--detach-keys", "ctrl-],q", "bad")
	p.Type("echo $kept\r")
	p.Expect(`\nhere\r\n`)
	p.Type("\x1dq")
	p.CheckExit(shell, 0, before)

	// If a command is killed, its guard restores the terminal.
	shell = p.start(u, "attach", "-it", "bad")
	p.Type("echo $kept\r")
	p.Expect(`\nhere\r\n`)
	if err := shell.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.settles(before)
	p.CheckExit(shell, -1, before)

	shell = p.start(u, "attach", "-it", "bad")
	p.Type("exit 6\r")
	p.CheckExit(shell, 6, before)
}

// settles waits until the terminal has its earlier settings.
func (p *terminal) settles(before unix.Termios) {
	p.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for p.Modes() != before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
}

// testTop uses top in a narrow and in a wide terminal. It sorts, and ends top by its key, by a signal and by force.
func testTop(t *testing.T, u *user) {
	u.must(manifest(busybox, "[sleep, '1000']", ""), "run", "-d", "--quiet", "-")
	defer u.must("", "rm", "-f", "bad")
	p := newTerminal(t, 24, 80)
	before := p.Modes()
	top := p.start(u, "top", "--interval", "100ms")
	p.Expect(`\x1b\[\?1049h\x1b\[\?25l`)
	p.Expect(`POD / CONTAINER +CPU% +CPU +MEM / LIMIT +MEM +RX/s +TX/s +RST`)
	p.Expect(`bad +(\x1b\[[0-9;]*m| )*\d+\.\d`)
	p.Expect(`c +\d+\.\d +`)
	p.Expect(`c \[CPU\]  m memory`)
	p.Type("m")
	p.Expect(`c CPU  m \[memory\]`)
	p.Resize(30, 200)
	p.Expect(`STATUS .* WRITTEN +PIDS  RST`)
	p.Expect(`Running`)
	p.Type("q")
	p.Expect(`\x1b\[\?25h\x1b\[\?1049l`)
	p.CheckExit(top, 0, before)

	prune := p.start(u, "image", "prune", "--all")
	p.Expect(`every image that no pod uses\. Continue\? \[y/N\] $`)
	p.Type("\r")
	p.CheckExit(prune, 0, before)
	prune = p.start(u, "image", "prune")
	p.Expect(`Continue\? \[y/N\] $`)
	p.Type("y\r")
	p.Expect(`freed 0 B\r\n`)
	p.CheckExit(prune, 0, before)

	top = p.start(u, "top")
	p.Expect(`q quit`)
	if err := top.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.Expect(`\x1b\[\?25h\x1b\[\?1049l`)
	p.CheckExit(top, 143, before)

	top = p.start(u, "top")
	p.Expect(`q quit`)
	if err := top.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.Expect(`\x1b\[\?25h\x1b\[\?1049l`)
	p.CheckExit(top, -1, before)
}

const two = `apiVersion: v1
kind: Pod
metadata: {name: two}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - name: a
    image: localhost/busybox:test
    command: [sh, -c, "trap 'echo ending; exit 3' TERM; echo up; while true; do sleep 0.1; done"]
  - name: longer
    image: localhost/busybox:test
    command: [sh, -c, "trap 'echo ending; exit 0' TERM; echo up; while true; do sleep 0.1; done"]
`

const shell = `apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  restartPolicy: Never
  containers: [{name: c, image: "localhost/busybox:test", command: [sh], stdin: true, tty: true}]
`

const deaf = `apiVersion: v1
kind: Pod
metadata: {name: deaf}
spec:
  terminationGracePeriodSeconds: 60
  containers:
  - name: c
    image: localhost/busybox:test
    command: [sh, -c, "trap 'echo deaf' TERM; echo up; while true; do sleep 0.1; done"]
`

func testForeground(t *testing.T, u *user) {
	p := newTerminal(t, 40, 100)
	before := p.Modes()
	run := p.start(u, "run", "--rm", write(t, two))
	for range 2 {
		p.Expect(`\x1b\[3[36]m(a     |longer) \|\x1b\[0m up\r\n`)
	}
	p.Type("\x03")
	p.Expect("stopping; Ctrl-C again kills")
	for range 2 {
		p.Expect(`(a     |longer) \|\x1b\[0m ending\r\n`)
	}
	p.CheckExit(run, 3, before)

	// A container that asks for a terminal gets this one.
	for _, args := range [][]string{{"run", "-it", "--rm", busybox, "sh"}, {"run", "--rm", write(t, shell)}} {
		run = p.start(u, args...)
		p.Expect(`# (\x1b\[\w+)*$`)
		p.Type("stty size; exit 6\r")
		p.Expect(`40 100\r\n`)
		p.CheckExit(run, 6, before)
	}

	// A container that ignores the signal is killed by the second one, long before its grace period is over.
	run = p.start(u, "run", "--rm", write(t, deaf))
	p.Expect(`up\r\n`)
	p.Type("\x03")
	p.Expect(`deaf\r\n`)
	p.Type("\x03")
	p.CheckExit(run, 137, before)

	u.env = append(u.env, "NO_COLOR=1")
	run = p.start(u, "run", "--rm", write(t, two))
	for range 2 {
		p.Expect(`^(a     |longer) \| up\r\n`)
	}
	p.Type("\x03")
	p.CheckExit(run, 3, before)
	u.env = u.env[:len(u.env)-1]
	if out := u.must("", "ps", "-q"); out != "" {
		t.Errorf("pods are left: %q", out)
	}
}

func write(t *testing.T, yaml string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func testBars(t *testing.T) {
	u := newUser(t, nil) // without any image
	p := newTerminal(t, 40, 80)
	before := p.Modes()
	u.loadBusybox()
	u.must("", "image", "rm", busybox)
	load := p.start(u, "image", "load", "oci:"+u.dir+"/image", busybox)
	p.Expect(`oci:\S+/image\x1b\[K\r\n`)
	p.Expect(`  [0-9a-f]{12} \[=+\]\s+[0-9.]+ MB / [0-9.]+ MB  done\x1b\[K\r\n\x1b\[J`)
	p.Expect(`\x1b\[\dA\x1b\[J`)
	p.Expect(`[0-9a-f]{64}\r\n`)
	p.CheckExit(load, 0, before)
}
