package shim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/anypb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testpty"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/hostio"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// TestHost takes processes with a surrogate through a real VM: their streams, exits, terminals and signals, the deaths
// of shims, and the deaths of surrogates.
func TestHost(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a VM and waits for surrogates: not with -short")
	}
	t.Parallel()
	h := startHost(t)
	h.streams(t)
	h.terminal(t)
	h.noReader(t)
	h.shimDies(t)
	h.surrogateDies(t)
	h.bothDie(t)
	h.vmDies(t)
}

// host is a pod with its shim.
type host struct {
	ctx context.Context
	o   shim.Options
	c   *shim.Client
}

func startHost(t *testing.T) *host {
	t.Helper()
	h := &host{ctx: testdeadline.Context(t, 2*time.Minute), o: options(t)}
	var err error
	if h.c, err = shim.Start(h.ctx, h.o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cleanUp(t, h.o) })
	t.Cleanup(func() { h.c.Close() })
	raw, err := json.Marshal(sandbox.Config{
		Version: sandbox.ConfigVersion, ID: h.o.ID, Instance: h.o.Instance, Name: "p", Namespace: "default",
		Hostname: "p", VM: h.o.VM, MemoryMiB: h.o.VM.Memory, Created: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.c.Sandbox.CreateSandbox(h.ctx, &sandboxv1.CreateSandboxRequest{
		SandboxID: h.o.ID, Options: &anypb.Any{TypeUrl: layout.ConfigType, Value: raw},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.c.Sandbox.StartSandbox(h.ctx, &sandboxv1.StartSandboxRequest{SandboxID: h.o.ID}); err != nil {
		t.Fatalf("start: %v\n%s", err, read(filepath.Join(h.o.StateDir, "console.log")))
	}
	return h
}

// create creates a container with descriptors as its standard streams.
func (h *host) create(t *testing.T, id string, args ...string) {
	t.Helper()
	bundle := filepath.Join(h.o.StateDir, id)
	if err := os.Mkdir(bundle, 0o755); err != nil {
		t.Fatal(err)
	}
	spec := fmt.Sprintf(`{"ociVersion":"1.0.2","process":{"cwd":"/","args":["%s"],"env":["PATH=/bin"],"user":{"uid":0,"gid":0}},
"root":{"path":"rootfs"},"hostname":"p","mounts":[{"destination":"/proc","type":"proc","source":"proc"},
{"destination":"/dev","type":"tmpfs","source":"tmpfs","options":["nosuid","mode=755"]},
{"destination":"/dev/pts","type":"devpts","source":"devpts",
"options":["nosuid","noexec","newinstance","ptmxmode=0666","mode=0620","gid=5"]}],
"linux":{"namespaces":[{"type":"pid"},{"type":"mount"}]}}`, strings.Join(args, `","`))
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), []byte(spec), 0o644); err != nil {
		t.Fatal(err)
	}
	if h.o.Owner != nil {
		if err := os.Chown(bundle, h.o.Owner.UID, h.o.Owner.GID); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.c.SendFile(h.ctx, "disk-"+id, disk(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.c.Task.Create(h.ctx, &taskv3.CreateTaskRequest{
		ID: id, Bundle: bundle, Stdin: "host:", Stdout: "host:",
		Rootfs: []*types.Mount{{Type: "bulkhead-disk", Source: "busybox", Options: []string{"file=disk-" + id}}},
	}); err != nil {
		t.Fatal(err)
	}
}

// exec registers a process in the container "main".
func (h *host) exec(t *testing.T, id string, terminal bool, script string) {
	t.Helper()
	process, err := json.Marshal(map[string]any{
		"cwd": "/", "args": []string{"sh", "-c", script}, "env": []string{"PATH=/bin"}, "user": map[string]any{"uid": 0, "gid": 0},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.c.Task.Exec(h.ctx, &taskv3.ExecProcessRequest{
		ID: "main", ExecID: id, Terminal: terminal, Stdin: "host:", Stdout: "host:", Spec: &anypb.Any{Value: process},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (h *host) start(t *testing.T, container, exec string) {
	t.Helper()
	if _, err := h.c.Task.Start(h.ctx, &taskv3.StartRequest{ID: container, ExecID: exec}); err != nil {
		t.Fatal(err)
	}
}

// surrogate is a process that stands for a process in the VM.
type surrogate struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.ReadCloser
	err *bytes.Buffer
}

// surrogateEnv makes the test's program a surrogate of the process that it names, in the directory that it names.
const surrogateEnv = "BULKHEAD_TEST_SURROGATE"

// surrogate starts a surrogate, which says on its stderr when it is connected.
func (h *host) surrogate(t *testing.T, container, exec_ string) *surrogate {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &surrogate{cmd: exec.Command(program), err: &bytes.Buffer{}}
	s.cmd.Env = append(os.Environ(), surrogateEnv+"="+strings.Join([]string{h.o.StateDir, container, exec_}, " "))
	if s.in, err = s.cmd.StdinPipe(); err == nil {
		s.out, err = s.cmd.StdoutPipe()
	}
	ready, child, pipeErr := os.Pipe()
	s.cmd.ExtraFiles = []*os.File{child}
	s.cmd.Stderr = s.err
	if err = errors.Join(err, pipeErr); err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	child.Close()
	defer ready.Close()
	t.Cleanup(func() { _ = s.cmd.Process.Kill() })
	context.AfterFunc(h.ctx, func() { _ = s.cmd.Process.Kill() }) // ends its output too
	if text, err := io.ReadAll(ready); string(text) != "connected" || err != nil {
		t.Fatalf("the surrogate is not connected: %q, %v: %s", text, err, s.err)
	}
	return s
}

// runSurrogate is the surrogate's main function.
func runSurrogate(env string) int {
	words := strings.Split(env, " ")
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGUSR1)
	exit, err := func() (hostio.Exit, error) {
		dir, err := hostio.OpenDir(words[0])
		if err != nil {
			return hostio.Exit{}, err
		}
		progress, err := hostio.NewProgress()
		if err != nil {
			return hostio.Exit{}, err
		}
		conn, err := hostio.Dial(context.Background(), dir, hostio.Process{Container: words[1], Exec: words[2]}, hostio.Files{
			Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Progress: progress,
		})
		if err != nil {
			return hostio.Exit{}, err
		}
		ready := os.NewFile(3, "ready")
		_, _ = ready.WriteString("connected")
		ready.Close()
		go func() {
			for sig := range signals {
				conn.Signal(int(sig.(syscall.Signal)))
			}
		}()
		return conn.Wait(context.Background())
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	if exit.Reason == sandbox.ReasonVMKilled {
		fmt.Fprintln(os.Stderr, exit.Reason)
	}
	return exit.Code
}

// ends waits for the surrogate's end and checks its exit code and its stderr.
func (s *surrogate) ends(t *testing.T, code int, stderr string) {
	t.Helper()
	err := s.cmd.Wait()
	if got := s.cmd.ProcessState.ExitCode(); got != code || s.err.String() != stderr {
		t.Errorf("the surrogate ended with %d (%v) and said %q, want %d and %q", got, err, s.err, code, stderr)
	}
}

// until reads the output up to a text.
func (s *surrogate) until(t *testing.T, text string) string {
	t.Helper()
	var all []byte
	for b := make([]byte, 1); !bytes.HasSuffix(all, []byte(text)); {
		if _, err := s.out.Read(b); err != nil {
			t.Fatalf("after %q: %v: %s", all, err, s.err)
		}
		all = append(all, b[0])
	}
	return string(all)
}

// streams runs a container that uses all its streams, and a command that gets a signal and exits.
func (h *host) streams(t *testing.T) {
	h.create(t, "main", "sh", "-c", "trap 'echo usr1' USR1; echo begin; cat; echo over >&2; exec sleep 1000")
	s := h.surrogate(t, "main", "")
	h.start(t, "main", "")
	s.until(t, "begin\n")
	input := strings.Repeat("all that goes in comes out\n", 10000)
	go func() {
		_, _ = io.WriteString(s.in, input)
		s.in.Close()
	}()
	got := make([]byte, len(input))
	if _, err := io.ReadFull(s.out, got); err != nil || string(got) != input {
		t.Errorf("%d bytes came out of %d, %v", len(got), len(input), err)
	}
	h.exec(t, "sig", false, "trap 'echo usr1; exit 5' USR1; echo ready; while :; do sleep 0.1; done")
	x := h.surrogate(t, "main", "sig")
	h.start(t, "main", "sig")
	x.until(t, "ready\n")
	if err := x.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	x.until(t, "usr1\n")
	x.ends(t, 5, "")
	h.forgotten(t, "sig")
	if s.err.String() != "over\n" {
		t.Errorf("stderr %q", s.err)
	}
}

// terminal runs a command on a terminal of the host.
func (h *host) terminal(t *testing.T) {
	h.exec(t, "tty", true, "busybox stty size; read word; echo got $word; "+
		`while [ "$(busybox stty size)" != "44 92" ]; do usleep 10000; done; echo resized; exit 3`)
	dir, err := hostio.OpenDir(h.o.StateDir)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	progress, err := hostio.NewProgress()
	if err != nil {
		t.Fatal(err)
	}
	defer progress.Close()
	master, slave := testpty.Open(t)
	testpty.Raw(t, slave)
	resize := func(rows, columns uint16) {
		t.Helper()
		if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	resize(33, 91)
	conn, err := hostio.Dial(h.ctx, dir, hostio.Process{Container: "main", Exec: "tty"}, hostio.Files{Terminal: slave, Progress: progress})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h.start(t, "main", "tty")
	s := &surrogate{out: master, err: &bytes.Buffer{}}
	first := s.until(t, "\r\n")
	resize(44, 92)
	conn.Resize(44, 92)
	if _, err := master.WriteString("hi\r"); err != nil {
		t.Fatal(err)
	}
	rest := s.until(t, "resized\r\n")
	if first != "33 91\r\n" || rest != "hi\r\ngot hi\r\nresized\r\n" {
		t.Errorf("terminal: %q, %q", first, rest)
	}
	if exit, err := conn.Wait(h.ctx); exit.Code != 3 || err != nil {
		t.Errorf("exit %+v, %v", exit, err)
	}
}

// noReader ends the reader of a command's output.
func (h *host) noReader(t *testing.T) {
	h.exec(t, "yes", false, "exec busybox yes")
	s := h.surrogate(t, "main", "yes")
	h.start(t, "main", "yes")
	s.until(t, "y\n")
	s.out.Close()
	s.ends(t, 128+int(syscall.SIGPIPE), "")
}

// killShim kills the shim, runs between, and starts the next one.
func (h *host) killShim(t *testing.T, between func()) {
	t.Helper()
	id, err := procid.Of(h.c.PID())
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-h.c.Done()
	h.c.Close()
	gone(t, "shim", h.c.PID())
	between()
	if h.c, err = shim.Adopt(h.ctx, h.o); err != nil {
		t.Fatalf("adopt: %v\n%s", err, read(filepath.Join(h.o.StateDir, "shim.log")))
	}
}

// shimDies kills shims while a command reads and writes: no byte is lost or repeated.
func (h *host) shimDies(t *testing.T) {
	h.exec(t, "count", false, "while read line; do echo $line; done; exit 4")
	s := h.surrogate(t, "main", "count")
	h.start(t, "main", "count")
	const lines, shims = 4000, 3
	go func() {
		for i := range lines {
			if _, err := fmt.Fprintf(s.in, "line %d\n", i); err != nil {
				return
			}
		}
		s.in.Close()
	}()
	type output struct {
		text []byte
		err  error
	}
	marks, all := make(chan struct{}, shims), make(chan output, 1)
	go func() {
		var o output
		buf := make([]byte, 4096)
		for mark := 5000; o.err == nil; {
			var n int
			n, o.err = s.out.Read(buf)
			if o.text = append(o.text, buf[:n]...); len(o.text) > mark {
				mark += 8000
				select {
				case marks <- struct{}{}:
				default:
				}
			}
		}
		all <- o
	}()
	for range shims {
		select {
		case <-marks:
		case <-h.ctx.Done():
			t.Fatal(context.Cause(h.ctx))
		}
		h.killShim(t, func() {})
	}
	o := <-all
	s.ends(t, 4, "")
	var want bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&want, "line %d\n", i)
	}
	if !bytes.Equal(o.text, want.Bytes()) {
		file := filepath.Join(os.TempDir(), "bulkhead-host-output")
		_ = os.WriteFile(file, o.text, 0o600)
		t.Errorf("got %d bytes of output, %v, want %d; they are in %s", len(o.text), o.err, want.Len(), file)
	}
}

// surrogateDies kills surrogates: their processes end, also that of a paused container.
func (h *host) surrogateDies(t *testing.T) {
	for _, id := range []string{"victim", "paused"} {
		h.create(t, id, "sh", "-c", "sleep 1000 & echo begin; sleep 1000")
		s := h.surrogate(t, id, "")
		h.start(t, id, "")
		s.until(t, "begin\n")
		if id == "paused" {
			if _, err := h.c.Task.Pause(h.ctx, &taskv3.PauseRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait()
		exit, err := h.c.Task.Wait(h.ctx, &taskv3.WaitRequest{ID: id})
		if err != nil || exit.ExitStatus != 137 {
			t.Errorf("%s: exit %v, %v", id, exit, err)
		}
	}
	h.exec(t, "lost", false, "echo begin; exec sleep 1000")
	s := h.surrogate(t, "main", "lost")
	h.start(t, "main", "lost")
	s.until(t, "begin\n")
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	h.forgotten(t, "lost")
}

// forgotten waits until the shim has deleted a command.
func (h *host) forgotten(t *testing.T, exec string) {
	t.Helper()
	for h.ctx.Err() == nil {
		if _, err := h.c.Task.State(h.ctx, &taskv3.StateRequest{ID: "main", ExecID: exec}); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("command %s still runs", exec)
}

// bothDie kills a surrogate while no shim runs: the next shim kills its process, and no other.
func (h *host) bothDie(t *testing.T) {
	h.exec(t, "orphan", false, "echo begin; exec sleep 1000")
	s := h.surrogate(t, "main", "orphan")
	h.start(t, "main", "orphan")
	s.until(t, "begin\n")
	h.killShim(t, func() {
		if err := s.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.cmd.Wait()
	})
	h.forgotten(t, "orphan")
	st, err := h.c.Task.State(h.ctx, &taskv3.StateRequest{ID: "main"})
	if err != nil || st.ExitStatus != 0 || st.ExitedAt.IsValid() && st.ExitedAt.AsTime().Unix() > 0 {
		t.Errorf("the container with a surrogate: %v, %v", st, err)
	}
}

// vmDies kills the VM under a command.
func (h *host) vmDies(t *testing.T) {
	h.exec(t, "last", false, "echo begin; exec sleep 1000")
	s := h.surrogate(t, "main", "last")
	h.start(t, "main", "last")
	s.until(t, "begin\n")
	st, err := h.c.Extension.Status(h.ctx, &shimv1.StatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	id, err := procid.Of(int(st.VmPid))
	if err != nil {
		t.Fatal(err)
	}
	if err := id.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.ends(t, 137, sandbox.ReasonVMKilled+"\n")
}
