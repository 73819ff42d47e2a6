package clients

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

var streamCases = []contractCase{
	{"input and its end", input},
	{"much output", muchOutput},
	{"a reader that left", brokenPipe},
	{"a reader that does not read", fullPipe},
	{"kill without a reader", killFullPipe},
	{"terminal", terminal},
	{"terminal of an exec", terminalExec},
	{"terminal without a socket", terminalRefused},
}

// input: the container reads its creator's input, and notices the end of it.
func input(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", script("cat; echo end; exit 4"))
	if _, err := k.stdin.WriteString("one\n"); err != nil {
		t.Fatal(err)
	}
	k.stdout.await(ctx, t, "one\n")
	if _, err := k.stdin.WriteString("two\n"); err != nil {
		t.Fatal(err)
	}
	k.stdin.Close()
	k.expectExit(ctx, t, 4)
	if got := k.stdout.all(ctx, t); got != "one\ntwo\nend\n" {
		t.Errorf("standard output %q", got)
	}
}

// muchOutput: all output has been written when the process has ended.
func muchOutput(ctx context.Context, t *testing.T, c *contract) {
	const lines = 100_000
	k := c.start(ctx, t, "c", script("seq 100000; seq 100000 >&2"))
	k.expectExit(ctx, t, 0)
	for name, s := range map[string]*transcript{"standard output": k.stdout, "standard error": k.stderr} {
		text := s.all(ctx, t)
		if n := strings.Count(text, "\n"); n != lines || !strings.HasPrefix(text, "1\n2\n") || !strings.HasSuffix(text, "\n99999\n100000\n") {
			t.Errorf("%s has %d lines, want %d", name, n, lines)
		}
	}
}

// brokenPipe: a program that writes into a pipe without a reader gets SIGPIPE.
func brokenPipe(ctx context.Context, t *testing.T, c *contract) {
	k := c.start(ctx, t, "c", script("(while :; do echo y; done); echo ended by $? >&2; exit 3"))
	k.stdout.await(ctx, t, "y\ny\n")
	k.stdout.hangUp()
	k.expectExit(ctx, t, 3)
	if got, want := k.stderr.all(ctx, t), fmt.Sprintf("ended by %d\n", 128+int(unix.SIGPIPE)); got != want {
		t.Errorf("standard error %q, want %q", got, want)
	}
}

// fullPipe: a container with output that is not read can be deleted by force.
func fullPipe(ctx context.Context, t *testing.T, c *contract) {
	r, w := pipe(t)
	args := c.args(filepath.Join(c.dir, "log"), "run", "--bundle", writeBundle(t, script("while :; do echo y; done")), "c")
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout = w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, "a full pipe", func() bool {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(w.Fd()), Events: unix.POLLOUT}}, 0)
		return err == nil && ready == 0
	})
	c.do(ctx, t, "delete", "--force", "c")
	c.fails(ctx, t, 1, "container does not exist", "state", "c")
	r.Close()      // runc's run passes the output on, and waits for that
	_ = cmd.Wait() // its container was deleted meanwhile
}

// killFullPipe: a killed container and its exec end although no process reads their output. The pipes keep their bytes.
func killFullPipe(ctx context.Context, t *testing.T, c *contract) {
	const endless = "while :; do echo y; done"
	read := map[string]*os.File{}
	for _, command := range [][]string{
		{"run", "--detach", "--bundle", writeBundle(t, script(endless)), "c"},
		{"exec", "--detach", "c", "sh", "-c", endless},
	} {
		r, w := pipe(t)
		args := c.args(filepath.Join(c.dir, "log"), command...)
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Stdout, cmd.Stderr = w, w
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v", command[0], err)
		}
		until(ctx, t, "a full pipe of "+command[0], func() bool {
			ready, err := unix.Poll([]unix.PollFd{{Fd: int32(w.Fd()), Events: unix.POLLOUT}}, 0)
			return err == nil && ready == 0
		})
		w.Close()
		read[command[0]] = r
	}
	c.do(ctx, t, "kill", "c", "KILL")
	c.awaitStatus(ctx, t, "c", specs.StateStopped)
	c.do(ctx, t, "delete", "c")
	for command, r := range read {
		text, err := io.ReadAll(r) // it ends with the last process that has the pipe
		if err != nil || !strings.HasPrefix(string(text), "y\ny\n") {
			t.Errorf("the pipe of %s: %d bytes, %v", command, len(text), err)
		}
	}
}

// terminal: the client receives the terminal's master by the console socket. Its size is the specification's, and follows
// later changes.
func terminal(ctx context.Context, t *testing.T, c *contract) {
	spec := script("trap 'stty size' WINCH; stty size; tty; echo err >&2; read line; echo \"read $line\"; while :; do sleep 0.01; done")
	spec.Process.Terminal, spec.Process.ConsoleSize = true, &specs.Box{Height: 33, Width: 111}
	spec.Process.Env = append(spec.Process.Env, "TERM=xterm")
	socket := listenConsole(t)
	k := c.create(ctx, t, "c", writeBundle(t, spec), "--console-socket", socket.path)
	master := socket.receive(t)
	screen := newTranscript(master)
	c.do(ctx, t, "start", "c")
	screen.await(ctx, t, "33 111\r\n/dev/pts/0\r\nerr\r\n")
	if _, err := master.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	screen.await(ctx, t, "hello\r\nread hello\r\n")
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 44, Col: 55}); err != nil {
		t.Fatal(err)
	}
	screen.await(ctx, t, "44 55\r\n")
	if _, err := master.WriteString("\x03"); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	k.expectExit(ctx, t, 130)
}

// terminalExec: exec has a terminal by --process or by --tty.
func terminalExec(ctx context.Context, t *testing.T, c *contract) {
	c.start(ctx, t, "c", newSpec("sleep", "1000"))
	socket := listenConsole(t)
	p := newSpec("sh", "-c", "stty size; read line; echo \"read $line\"; exit 8").Process
	p.Terminal, p.ConsoleSize = true, &specs.Box{Height: 20, Width: 30}
	e := c.execDetached(ctx, t, "c", p, "--console-socket", socket.path, "--tty")
	master := socket.receive(t)
	screen := newTranscript(master)
	screen.await(ctx, t, "20 30\r\n")
	if _, err := master.WriteString("hello\n"); err != nil {
		t.Fatal(err)
	}
	screen.await(ctx, t, "read hello\r\n")
	e.expectExit(ctx, t, 8)
}

// terminalRefused: create with a terminal needs a console socket, and only then.
func terminalRefused(ctx context.Context, t *testing.T, c *contract) {
	spec := newSpec("true")
	spec.Process.Terminal = true
	c.fails(ctx, t, 1, "cannot allocate tty if runc will detach without setting console socket", "create", "-b", writeBundle(t, spec), "c")
	c.fails(ctx, t, 1, "cannot use console socket if runc will not detach or allocate tty",
		"create", "-b", writeBundle(t, newSpec("true")), "--console-socket", "/run/none", "c")
}

// console is a console socket.
type console struct {
	path     string
	listener *net.UnixListener
}

func listenConsole(t *testing.T) console {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "console")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); os.RemoveAll(dir) })
	return console{path, l}
}

// receive returns the master that a runtime has sent. The runtime has ended.
func (c console) receive(t *testing.T) *os.File {
	t.Helper()
	conn, err := c.listener.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	data, control := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(data, control)
	if err != nil {
		t.Fatal(err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		t.Fatalf("the console socket: %d messages, %v", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("the console socket: %d files, %v", len(fds), err)
	}
	if err := unix.SetNonblock(fds[0], true); err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fds[0]), "console")
	t.Cleanup(func() { f.Close() })
	return f
}
