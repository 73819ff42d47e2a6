package warm

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// build compiles the library and the program that is forked in the tests, once for each
// set of flags.
type build struct {
	flags           []string
	once            sync.Once
	err             error
	dir             string
	library, target string
}

// plain uses the flags of the Makefile.
var plain = &build{}

func (b *build) compile(t *testing.T) {
	t.Helper()
	testgo.NeedTree()
	b.once.Do(func() {
		if b.dir, b.err = os.MkdirTemp("", "bulkhead-warm-test"); b.err != nil {
			return
		}
		b.library, b.target = filepath.Join(b.dir, "warm.so"), filepath.Join(b.dir, "target")
		sources, err := filepath.Glob("preload/*.c")
		if err != nil || len(sources) == 0 {
			b.err = fmt.Errorf("no sources: %w", err)
			return
		}
		library := append([]string{"-fPIC", "-fvisibility=hidden", "-shared", "-Wl,-z,now,-z,relro", "-o", b.library}, sources...)
		for _, args := range [][]string{library, {"-pthread", "-o", b.target, "testdata/target.c"}} {
			args = slices.Concat([]string{"-O2", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Wconversion", "-Werror"}, b.flags, args)
			if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
				b.err = fmt.Errorf("%w: %s", err, out)
				return
			}
		}
	})
	if b.err != nil {
		t.Fatal(b.err)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, b := range builds {
		os.RemoveAll(b.dir)
	}
	os.Exit(code)
}

var builds = []*build{plain, sanitized, addresses}

// patience is the longest time that anything in a test takes on an idle computer.
const patience = time.Minute

// target is a running program, a parent or a child.
type target struct {
	pid  int
	conn net.Conn
	in   *bufio.Reader
}

// parent is a target with its control connection.
type parent struct {
	target
	*Control
	t     *testing.T
	ctx   context.Context
	name  string
	comm  string     // the name of its processes, also of dead ones
	ended chan error // receives the result of Wait
}

// start starts the program as a parent, which ends with the test.
func (b *build) start(t *testing.T, modes ...string) *parent {
	t.Helper()
	b.compile(t)
	ctx := testdeadline.Context(t, patience)
	n := serial.Add(1)
	p := &parent{
		t: t, ctx: ctx, name: fmt.Sprintf("test-a-%d-%04d", os.Getpid(), n), comm: fmt.Sprintf("t%d-%d", os.Getpid(), n),
		ended: make(chan error, 1),
	}
	path, listener := socket(t)
	complaints, stderr := pipe(t)
	program := filepath.Join(t.TempDir(), p.comm)
	if err := os.Symlink(b.target, program); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, append(modes, "-name", p.name)...)
	cmd.Env = []string{"ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0", "UBSAN_OPTIONS=print_stacktrace=1"}
	cmd.ExtraFiles, cmd.Stderr, cmd.SysProcAttr = []*os.File{listener}, stderr, &syscall.SysProcAttr{Setsid: true}
	var err error
	if p.Control, err = Prepare(cmd, b.library); err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err == nil {
		err = p.Started()
	}
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // so that connections fail after the program has ended
	go func() { p.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		p.Close()
		_ = cmd.Process.Signal(unix.SIGCONT)
		select {
		case err := <-p.ended:
			p.ended <- err
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Error("the parent outlived its control")
		}
		out := make([]byte, 4096)
		if err := complaints.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
			t.Error(err)
		}
		if n, _ := complaints.Read(out); n > 0 {
			t.Errorf("the program complained: %s", out[:n])
		}
	})
	p.target = reach(t, ctx, cmd.Process.Pid, path)
	p.ask(t, ctx, "signals") // it has made its threads and descriptors
	return p
}

// serial gives each parent of a run a name of its own.
var serial atomic.Int32

// pipe returns a new pipe for the program's output. A file would not do, because a child must not share it.
func pipe(t *testing.T) (r, w *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	return r, w
}

// socket returns a listening socket.
func socket(t *testing.T) (path string, f *os.File) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if f, err = l.File(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return path, f
}

// reach connects to a program.
func reach(t *testing.T, ctx context.Context, pid int, path string) target {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return target{pid, conn, bufio.NewReader(conn)}
}

// ask sends a word and returns the answer.
func (g target) ask(t *testing.T, ctx context.Context, word string) string {
	t.Helper()
	stop := context.AfterFunc(ctx, func() { g.conn.Close() })
	defer stop()
	_, err := fmt.Fprintln(g.conn, word)
	line := ""
	if err == nil {
		line, err = g.in.ReadString('\n')
	}
	if err != nil {
		stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.pid))
		t.Fatalf("ask process %d for %q: %v (%v): %s", g.pid, word, err, context.Cause(ctx), stat)
	}
	return strings.TrimSuffix(line, "\n")
}

// child forks a child, which ends with the test.
func (p *parent) child(r Request) (target, Answer) {
	p.t.Helper()
	path, listener := socket(p.t)
	r.Files = append(r.Files, qemu.Inherited{Number: 3, File: listener})
	a, err := p.Fork(p.ctx, r)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { kill(p.t, a.PID) })
	if r.Owner != nil {
		if err := os.Chmod(filepath.Dir(path), 0o755); err != nil {
			p.t.Fatal(err)
		}
	}
	return reach(p.t, p.ctx, a.PID, path), a
}

// kill ends a living child and reaps it.
func kill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil || status.Signal() != unix.SIGKILL {
		t.Errorf("child %d had ended before: %v, %v", pid, status, err)
	}
}

// workers has each of the program's workers do its work and returns their thread IDs by name. A worker that reports an
// error fails the test.
func (g target) workers(t *testing.T, ctx context.Context) map[string]string {
	t.Helper()
	tids := map[string]string{}
	for one := range strings.SplitSeq(strings.TrimSuffix(g.ask(t, ctx, "work"), ";"), ";") {
		f := strings.SplitN(one, " ", 4)
		if len(f) != 4 || f[3] != "ok" {
			t.Errorf("process %d: %s", g.pid, one)
			continue
		}
		tids[f[0]] = f[1]
	}
	return tids
}

// names returns the names of a process's threads, in order.
func names(t *testing.T, pid int) []string {
	t.Helper()
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", pid))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, path := range tasks {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, strings.TrimSpace(string(b)))
	}
	slices.Sort(all)
	return all
}
