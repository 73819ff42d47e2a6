// Package e2e tests whole commands: the programs as they are installed, with
// directories of their own, killed at every step.
package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/testfaults"
	"github.com/bulkhead-project/bulkhead/internal/testimage"
	"github.com/bulkhead-project/bulkhead/internal/testtemplate"
)

func TestMain(m *testing.M) {
	code := m.Run()
	_ = testtemplate.Remove()
	os.Exit(code)
}

// image is what every pod of these tests runs.
const image = "localhost/busybox:test"

// world is a user's directories with what runs in them. Its methods fail the
// test that they are given.
type world struct {
	dir, bin string
	faults   *testfaults.Faults
	warm     string // whether an engine forks VMs that starts now: on or off
	idle     string
	notify   string // the socket of a service manager that starts what starts now; empty is none
}

// newWorld makes the directories and loads the image. Everything that runs in
// them ends with the test. Its VMs are clones.
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
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	bin, err := testfaults.Programs()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("/tmp", "bk") // short: sockets lie beneath
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	w := &world{dir: dir, bin: bin, warm: warm, idle: "1m"}
	testtemplate.Share(t, dir, w.roots().Data)
	w.faults = testfaults.Listen(t, filepath.Join(dir, "faults"))
	t.Cleanup(func() { w.end(t) })
	w.must(t, "", "image", "load", "oci:"+testimage.Busybox(t), image)
	return w
}

func (w *world) roots() dirs.Roots {
	return dirs.Roots{Data: filepath.Join(w.dir, "data"), State: filepath.Join(w.dir, "state")}
}

// commandLimit bounds every command, on an idle machine.
const commandLimit = 90 * time.Second

// command is a running bulkhead.
type command struct {
	*exec.Cmd
	out, err bytes.Buffer
	ended    chan struct{}
	args     []string
}

func (w *world) start(t *testing.T, stdin string, args ...string) *command {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(commandLimit))
	c := &command{Cmd: exec.CommandContext(ctx, filepath.Join(w.bin, "bulkhead"), args...), ended: make(chan struct{}), args: args}
	r := w.roots()
	c.Dir, c.Stdin, c.Stdout, c.Stderr = "/", strings.NewReader(stdin), &c.out, &c.err
	c.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "BULKHEAD_DATA=" + r.Data, "BULKHEAD_STATE=" + r.State,
		"BULKHEAD_LIBEXEC=" + w.bin, "BULKHEAD_GUEST=" + testfaults.Guest(), "BULKHEAD_FAULTS=" + w.faults.Path,
		"BULKHEAD_WARM=" + w.warm, "BULKHEAD_IDLE=" + w.idle, "NOTIFY_SOCKET=" + w.notify,
	}
	// What holds its output open must not hold its end up.
	c.WaitDelay = time.Second
	if err := c.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	go func() {
		defer close(c.ended)
		defer cancel()
		_ = c.Wait() // its code is asked for
	}()
	return c
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

// run runs a command to its end.
func (w *world) run(t *testing.T, stdin string, args ...string) *command {
	t.Helper()
	c := w.start(t, stdin, args...)
	c.wait(t)
	return c
}

// must runs a command that has to succeed, and returns its output.
func (w *world) must(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	c := w.run(t, stdin, args...)
	if c.ProcessState.ExitCode() != 0 {
		t.Fatal(c)
	}
	return c.out.String()
}

// shutdown ends the engine, if one runs; its pods run on.
func (w *world) shutdown(t *testing.T) {
	t.Helper()
	pid := w.engine()
	if pid == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(30*time.Second))
	defer cancel()
	err := client.New(w.roots(), nil).Call(ctx, "POST", "/v1/shutdown", nil, nil, &api.Result{})
	if err != nil {
		t.Errorf("end the engine: %v", err)
	}
	if err := gone(ctx, pid); err != nil {
		t.Errorf("end the engine: %v", err)
	}
}

// end removes every pod, ends the engine, and checks that nothing runs.
func (w *world) end(t *testing.T) {
	began := time.Now()
	w.faults.Disarm()
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(time.Minute))
	defer cancel()
	c := client.New(w.roots(), nil)
	if w.engine() != 0 {
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

// engineLog is its end.
func (w *world) engineLog() string {
	log, _ := os.ReadFile(filepath.Join(w.roots().Instance(client.Instance), "engine.log"))
	return string(log[max(0, len(log)-6000):])
}

// pod is a pod's YAML whose one container runs a script.
func pod(name, policy, script string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {restartPolicy: %s, terminationGracePeriodSeconds: 2,
  containers: [{name: c, image: %q, command: [sh, -c, %q]}]}}`, name, policy, image, script)
}
