// Package e2e tests whole commands: the installed programs in their own directories, killed at every step.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testfaults"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testtemplate"
)

// image is the image of all pods in these tests.
const image = "localhost/busybox:test"

// world has a user's directories and the processes in them. Its methods fail the test that they are given.
type world struct {
	dir, bin string
	faults   *testfaults.Faults
	warm     string // whether new engines fork VMs: on or off
	idle     string
	notify   string                // the socket of a service manager for new processes; empty: none
	uid      int                   // of its owner
	guest    string                // the directory of the guest bundle
	memory   string                // of the VM of a pod without a limit; empty: Bulkhead's default
	begin    func(*exec.Cmd) error // starts commands and their children; nil means Start
}

// newWorld creates the directories and loads the image. All processes in them end with the test. Its VMs are
// clones.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, "off")
}

// newForkingWorld is newWorld for many pods: its VMs are forked as soon as one is warm.
func newForkingWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, "on")
}

func newWorldWith(t *testing.T, warm string) *world {
	t.Helper()
	return newWorldOf(t, 0, warm)
}

// newWorldOf creates the directories of that user, who owns them if this process may change owners.
func newWorldOf(t *testing.T, uid int, warm string) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	bin, err := testfaults.Programs()
	if err != nil {
		t.Fatal(err)
	}
	dir := fmt.Sprintf("/tmp/bk%d", rand.Uint32N(1e6)) // short: sockets lie below it
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w := &world{dir: dir, bin: bin, guest: testfaults.Guest(), warm: warm, idle: "1m", uid: uid}
	if uid != 0 {
		if err := os.Lchown(dir, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	testtemplate.Share(t, dir, w.roots())
	w.faults = testfaults.Listen(t, filepath.Join(dir, "faults"))
	t.Cleanup(func() { w.end(t) })
	layout := testimage.Busybox(t)
	if uid != 0 {
		layout = w.reachable(t, layout)
	}
	w.must(t, "", "image", "load", "oci:"+layout, image)
	return w
}

// reachable copies the programs, the guest and the layout of an image for the world's user, who may not reach this
// test's directories. It returns the layout's copy.
func (w *world) reachable(t *testing.T, layout string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bk-copies")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []*string{&w.bin, &w.guest, &layout} {
		to := filepath.Join(dir, filepath.Base(*path))
		if err := os.CopyFS(to, os.DirFS(*path)); err != nil {
			t.Fatal(err)
		}
		*path = to
	}
	return layout
}

func (w *world) roots() dirs.Roots {
	if w.uid != 0 { // the XDG directories
		return dirs.Roots{Data: filepath.Join(w.dir, "data/bulkhead"), State: filepath.Join(w.dir, "bulkhead")}
	}
	return dirs.Roots{Data: filepath.Join(w.dir, "data"), State: filepath.Join(w.dir, "state")}
}

// home creates a directory of the world's user, outside of the world.
func (w *world) home(t *testing.T, name string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bk-"+name) // other users cannot enter the test's own
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(os.Chmod(dir, 0o755), os.Lchown(dir, w.uid, w.uid)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// commandLimit bounds every command on an idle host.
const commandLimit = 90 * time.Second

// command is a running bulkhead.
type command struct {
	*exec.Cmd
	out, err bytes.Buffer
	ended    chan struct{}
	args     []string
}

// command returns a command that has not been started.
func (w *world) command(ctx context.Context, args ...string) *command {
	return w.program(ctx, "bulkhead", args...)
}

// program returns a command of one of the programs.
func (w *world) program(ctx context.Context, name string, args ...string) *command {
	c := &command{Cmd: exec.CommandContext(ctx, filepath.Join(w.bin, name), args...), ended: make(chan struct{}), args: args}
	r := w.roots()
	c.Dir, c.Stderr = "/", &c.err
	places := []string{"BULKHEAD_DATA=" + r.Data, "BULKHEAD_STATE=" + r.State}
	if w.uid != 0 {
		places = []string{"XDG_DATA_HOME=" + filepath.Dir(r.Data), "XDG_RUNTIME_DIR=" + w.dir}
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}}
	}
	c.Env = append(places,
		"PATH="+os.Getenv("PATH"), "HOME="+w.dir, "BULKHEAD_LIBEXEC="+w.bin, "BULKHEAD_GUEST="+w.guest, "BULKHEAD_FAULTS="+w.faults.Path,
		"BULKHEAD_WARM="+w.warm, "BULKHEAD_IDLE="+w.idle, "NOTIFY_SOCKET="+w.notify,
		"BULKHEAD_DEFAULT_MEMORY="+w.memory,
	)
	// A process that holds the output open must not delay the command's end.
	c.WaitDelay = time.Second
	return c
}

func (w *world) start(t *testing.T, stdin string, args ...string) *command {
	t.Helper()
	// Also after the test, when its context has ended.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testdeadline.For(commandLimit))
	c := w.command(ctx, args...)
	c.Stdin, c.Stdout = strings.NewReader(stdin), &c.out
	w.launch(t, c, cancel)
	return c
}

// launch starts a command, and calls cancel at its end.
func (w *world) launch(t *testing.T, c *command, cancel context.CancelFunc) {
	t.Helper()
	begin := (*exec.Cmd).Start
	if w.begin != nil {
		begin = w.begin
	}
	if err := begin(c.Cmd); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		defer cancel()
		_ = c.Wait() // its code is read elsewhere
	}()
}

// wait returns the command's exit code, -1 if it was killed.
func (c *command) wait(t *testing.T) int {
	t.Helper()
	<-c.ended
	if d := c.ProcessState.SystemTime(); d < 0 {
		t.Fatal("no state")
	}
	return c.ProcessState.ExitCode()
}

func (c *command) String() string {
	return fmt.Sprintf("bulkhead %s: exit code %d: %s%s", strings.Join(c.args, " "), c.ProcessState.ExitCode(), c.out.String(), c.err.String())
}

// run runs a command until it exits.
func (w *world) run(t *testing.T, stdin string, args ...string) *command {
	t.Helper()
	c := w.start(t, stdin, args...)
	c.wait(t)
	return c
}

// must runs a command that must succeed, and returns its output.
func (w *world) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	c := w.run(t, stdin, args...)
	if c.ProcessState.ExitCode() != 0 {
		t.Fatal(c)
	}
	return c.out.String()
}

// shutdown stops the engine if one runs. Its pods keep running.
func (w *world) shutdown(t *testing.T) {
	t.Helper()
	pid := w.engine()
	if pid == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(30*time.Second))
	defer cancel()
	var err error
	if w.uid == 0 {
		err = client.New(w.roots(), nil).Call(ctx, "POST", "/v1/shutdown", nil, nil, &api.Result{})
	} else { // root's requests do not reach this engine
		err = unix.Kill(pid, unix.SIGTERM)
	}
	if err != nil {
		t.Errorf("end the engine: %v", err)
	}
	if err := gone(ctx, pid); err != nil {
		t.Errorf("end the engine: %v", err)
	}
}

// end removes all pods, stops the engine, and checks that nothing runs.
func (w *world) end(t *testing.T) {
	began := time.Now()
	w.faults.Disarm()
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(time.Minute))
	defer cancel()
	c := client.New(w.roots(), nil)
	if w.engine() != 0 && w.uid != 0 {
		for _, name := range strings.Fields(w.must(t, "", "ps", "-q")) {
			w.must(t, "", "rm", "-f", name)
		}
		w.shutdown(t)
	} else if w.engine() != 0 {
		var pods []api.Pod
		err := c.Call(ctx, "GET", "/v1/pods", nil, nil, &pods)
		for _, p := range pods {
			err = errors.Join(err, c.Call(ctx, "DELETE", "/v1/pods/"+p.UID, map[string][]string{"force": {"true"}}, nil, nil))
		}
		if err != nil {
			t.Errorf("remove the pods: %v", err)
		}
		w.shutdown(t)
	}
	if t.Failed() {
		t.Logf("the engine's log:\n%s", w.engineLog())
	}
	// A shim's sockets close some milliseconds before its end.
	for len(w.processes()) > 0 && time.Since(began) < testdeadline.For(10*time.Second) {
		time.Sleep(20 * time.Millisecond)
	}
	for _, p := range w.processes() {
		t.Errorf("left running: %s", p)
		_ = kill(p.pid)
	}
}

// engineLog returns the end of the engine's log.
func (w *world) engineLog() string {
	log, _ := os.ReadFile(filepath.Join(w.roots().Instance(client.Instance), "engine.log"))
	return string(log[max(0, len(log)-6000):])
}

// pod returns the YAML of a pod with one container that runs a script.
func pod(name, policy, script string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {restartPolicy: %s, terminationGracePeriodSeconds: 2,
  containers: [{name: c, image: %q, command: [sh, -c, %q]}]}}`, name, policy, image, script)
}
