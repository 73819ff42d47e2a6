package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal whose user is the test.
type terminal struct {
	t             *testing.T
	master, slave *os.File

	mu    sync.Mutex
	said  strings.Builder
	heard chan struct{} // has room for one
}

func newTerminal(t *testing.T, rows, columns uint16) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	term := &terminal{t: t, master: master, slave: slave, heard: make(chan struct{}, 1)}
	term.resize(rows, columns)
	go term.listen()
	return term
}

// listen keeps what is printed, until the terminal is closed.
func (p *terminal) listen() {
	for b := make([]byte, 4096); ; {
		n, err := p.master.Read(b)
		if err != nil {
			return
		}
		p.mu.Lock()
		p.said.Write(b[:n])
		p.mu.Unlock()
		select {
		case p.heard <- struct{}{}:
		default:
		}
	}
}

func (p *terminal) resize(rows, columns uint16) {
	p.t.Helper()
	if err := unix.IoctlSetWinsize(int(p.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
		p.t.Fatal(err)
	}
}

// modes are the terminal's settings.
func (p *terminal) modes() unix.Termios {
	p.t.Helper()
	m, err := unix.IoctlGetTermios(int(p.slave.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *m
}

func (p *terminal) typed(text string) {
	p.t.Helper()
	if _, err := p.master.WriteString(text); err != nil {
		p.t.Fatal(err)
	}
}

// expect waits until the terminal shows what matches, and forgets what it has
// shown until then.
func (p *terminal) expect(pattern string) string {
	p.t.Helper()
	re, limit := regexp.MustCompile(pattern), time.After(30*time.Second)
	for {
		p.mu.Lock()
		text := p.said.String()
		if at := re.FindStringIndex(text); at != nil {
			p.said.Reset()
			p.said.WriteString(text[at[1]:])
			p.mu.Unlock()
			return text[at[0]:at[1]]
		}
		p.mu.Unlock()
		select {
		case <-p.heard:
		case <-limit:
			p.t.Fatalf("the terminal does not show %s, but %q", pattern, text)
		}
	}
}

// start runs a command of the user's on the terminal.
func (p *terminal) start(u *user, args ...string) *exec.Cmd {
	p.t.Helper()
	args = append(append(append([]string{}, u.prefix...), filepath.Join(os.Getenv("BULKHEAD_LIBEXEC"), "bulkhead")), args...)
	ctx, cancel := context.WithTimeout(p.t.Context(), 90*time.Second)
	p.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	p.mu.Lock()
	p.said.Reset()
	p.mu.Unlock()
	cmd.Dir, cmd.Env = "/", append([]string{"TERM=xterm"}, u.env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = p.slave, p.slave, p.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	return cmd
}

// end waits for a command, and wants its code and the terminal as it was.
func (p *terminal) end(cmd *exec.Cmd, code int, before unix.Termios) {
	p.t.Helper()
	_ = cmd.Wait() // the code tells
	if got := cmd.ProcessState.ExitCode(); got != code {
		p.t.Errorf("exit code %d, want %d", got, code)
	}
	if diff := cmp.Diff(before, p.modes()); diff != "" {
		p.t.Errorf("the terminal is not as it was: %s", diff)
	}
}

// TestTerminal sits at a terminal: a shell in a pod, the output of several
// containers, Ctrl-C once and twice, and bars of a pull.
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
	before := p.modes()
	// The first pod of all has its template built, which takes a while and is told.
	run := p.start(u, "run", "-d", write(t, manifest(busybox, "[sleep, '1000']", "")))
	p.expect(`booting a machine to clone pods from, [a-z, ]+ …\x1b\[K\r\n`)
	p.expect(`\x1b\[1A\x1b\[J`)
	p.expect(`bad\r\n`)
	p.end(run, 0, before)
	defer u.must("", "rm", "-f", "bad")
	const prompt = `# (\x1b\[\w+)*$` // with what it asks and clears

	shell := p.start(u, "exec", "-it", "bad", "--", "sh")
	p.expect(prompt)
	p.typed("stty size; tty; echo $TERM\r")
	p.expect(`40 100\r\n/dev/pts/0\r\nxterm\r\n`)
	p.expect(prompt)
	p.resize(24, 81)
	// The new size travels beside what is typed: asked until it is there.
	p.typed("until [ \"$(stty size)\" = '24 81' ]; do sleep 0.1; done; echo re''sized\r")
	p.expect(`resized\r\n`)
	p.typed("sh -c 'echo sl''eeping; sleep 1000'\r")
	p.expect("sleeping\r\n")
	p.typed("\x03") // is the pod's, not the command's
	p.expect(`\^C`)
	p.expect(prompt)
	p.typed("exit 4\r")
	p.end(shell, 4, before)

	shell = p.start(u, "exec", "-it", "bad", "--", "sh")
	p.expect(prompt)
	if err := shell.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.end(shell, 143, before)

	shell = p.start(u, "exec", "-it", "bad", "--", "sh")
	p.expect(prompt)
	u.must("", "stop", "-t", "0", "bad")
	p.end(shell, 137, before)
}

// testAttach joins a shell that is a container's first process, leaves it by its
// keys, finds it as it was, and ends it.
func testAttach(t *testing.T, u *user) {
	u.must(manifest(busybox, "[sh]", "    stdin: true\n    tty: true\n"), "run", "-d", "--quiet", "-")
	defer u.must("", "rm", "-f", "bad")
	p := newTerminal(t, 40, 100)
	before := p.modes()

	shell := p.start(u, "attach", "-it", "bad")
	p.typed("kept=here; stty size\r")
	p.expect(`40 100\r\n`)
	p.typed("\x10\x11")
	p.expect("detached")
	p.end(shell, 0, before)

	shell = p.start(u, "attach", "-it", "--detach-keys", "ctrl-],q", "bad")
	p.typed("echo $kept\r")
	p.expect(`\nhere\r\n`)
	p.typed("\x1dq")
	p.end(shell, 0, before)

	// A command that can clear up nothing any more leaves the terminal to its guard.
	shell = p.start(u, "attach", "-it", "bad")
	p.typed("echo $kept\r")
	p.expect(`\nhere\r\n`)
	if err := shell.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.settles(before)
	p.end(shell, -1, before)

	shell = p.start(u, "attach", "-it", "bad")
	p.typed("exit 6\r")
	p.end(shell, 6, before)
}

// settles waits until the terminal is as it was before.
func (p *terminal) settles(before unix.Termios) {
	p.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for p.modes() != before && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
}

// testTop looks at top in a narrow and in a wide terminal, sorts, and leaves it by
// its key, by a signal and by force.
func testTop(t *testing.T, u *user) {
	u.must(manifest(busybox, "[sleep, '1000']", ""), "run", "-d", "--quiet", "-")
	defer u.must("", "rm", "-f", "bad")
	p := newTerminal(t, 24, 80)
	before := p.modes()
	top := p.start(u, "top", "--interval", "100ms")
	p.expect(`\x1b\[\?1049h\x1b\[\?25l`)
	p.expect(`POD / CONTAINER +CPU% +CPU +MEM / LIMIT +MEM +RX/s +TX/s +RST`)
	p.expect(`bad +(\x1b\[[0-9;]*m| )*\d+\.\d`)
	p.expect(`c +\d+\.\d +`)
	p.expect(`c \[CPU\]  m memory`)
	p.typed("m")
	p.expect(`c CPU  m \[memory\]`)
	p.resize(30, 200)
	p.expect(`STATUS .* WRITTEN +PIDS  RST`)
	p.expect(`Running`)
	p.typed("q")
	p.expect(`\x1b\[\?25h\x1b\[\?1049l`)
	p.end(top, 0, before)

	prune := p.start(u, "image", "prune", "--all")
	p.expect(`every image that no pod uses\. Go on\? \[y/N\] $`)
	p.typed("\r")
	p.end(prune, 0, before)
	prune = p.start(u, "image", "prune")
	p.expect(`Go on\? \[y/N\] $`)
	p.typed("y\r")
	p.expect(`freed 0 B\r\n`)
	p.end(prune, 0, before)

	top = p.start(u, "top")
	p.expect(`q quit`)
	if err := top.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	p.expect(`\x1b\[\?25h\x1b\[\?1049l`)
	p.end(top, 143, before)

	top = p.start(u, "top")
	p.expect(`q quit`)
	if err := top.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.expect(`\x1b\[\?25h\x1b\[\?1049l`)
	p.end(top, -1, before)
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
	before := p.modes()
	run := p.start(u, "run", "--rm", write(t, two))
	for range 2 {
		p.expect(`\x1b\[3[36]m(a     |longer) \|\x1b\[0m up\r\n`)
	}
	p.typed("\x03")
	p.expect("stopping; Ctrl-C again kills")
	for range 2 {
		p.expect(`(a     |longer) \|\x1b\[0m ending\r\n`)
	}
	p.end(run, 3, before)

	// A container that asks for a terminal gets this one.
	for _, args := range [][]string{{"run", "-it", "--rm", busybox, "sh"}, {"run", "--rm", write(t, shell)}} {
		run = p.start(u, args...)
		p.expect(`# (\x1b\[\w+)*$`)
		p.typed("stty size; exit 6\r")
		p.expect(`40 100\r\n`)
		p.end(run, 6, before)
	}

	// What does not obey is killed by another, long before its grace is over.
	run = p.start(u, "run", "--rm", write(t, deaf))
	p.expect(`up\r\n`)
	p.typed("\x03")
	p.expect(`deaf\r\n`)
	p.typed("\x03")
	p.end(run, 137, before)

	u.env = append(u.env, "NO_COLOR=1")
	run = p.start(u, "run", "--rm", write(t, two))
	for range 2 {
		p.expect(`^(a     |longer) \| up\r\n`)
	}
	p.typed("\x03")
	p.end(run, 3, before)
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
	u := newUser(t, nil) // who has no image yet
	p := newTerminal(t, 40, 80)
	before := p.modes()
	u.loadBusybox()
	u.must("", "image", "rm", busybox)
	load := p.start(u, "image", "load", "oci:"+u.dir+"/image", busybox)
	p.expect(`oci:\S+/image\x1b\[K\r\n`)
	p.expect(`  [0-9a-f]{12} \[=+\]\s+[0-9.]+ MB / [0-9.]+ MB  done\x1b\[K\r\n\x1b\[J`)
	p.expect(`\x1b\[\dA\x1b\[J`)
	p.expect(`[0-9a-f]{64}\r\n`)
	p.end(load, 0, before)
}
