package process

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"
	"golang.org/x/sys/unix"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	client "github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/confine"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

func endPod(t *testing.T, w *world, c *client.Client) {
	t.Helper()
	if _, err := c.Sandbox.ShutdownSandbox(w.ctx, &sandboxv1.ShutdownSandboxRequest{SandboxID: podID}); err != nil {
		t.Error(err)
	}
	c.Close()
}

// TestLife: a shim confines its VM, serves its pod and ends on request, without errors and without leftovers.
func TestLife(t *testing.T) {
	w := newWorld(t)
	l := w.start(bootstrap.Message{DataDir: "/data"}, nil)
	c := l.connect()
	if err := l.start(c); err != nil {
		t.Fatal(err)
	}
	if w.driver.name != "bulkhead-0123456789ab" || !slices.Equal(w.driver.asked, []string{"boot"}) || w.driver.booted != w.config {
		t.Errorf("%v: %s, %+v", w.driver.asked, w.driver.name, w.driver.booted)
	}
	if want := []int{w.driver.vm.Process().PID}; !slices.Equal(w.sealed, want) {
		t.Errorf("sealed for %v, not %v", w.sealed, want)
	}
	own, vm := w.policies[0], w.policies[1]
	if !slices.Contains(own.Write, w.dir) || !slices.Contains(own.Write, "/data") || !slices.Contains(own.Read, "/usr/share") {
		t.Errorf("the shim may write %v and read %v", own.Write, own.Read)
	}
	if slices.Contains(vm.Write, w.dir) || slices.Contains(vm.Write, "/data") || !vm.NoTCP {
		t.Errorf("the VM may %+v", vm)
	}
	endPod(t, w, c)
	if err := l.wait(); err != nil || w.driver.alive() {
		t.Errorf("%v, VM alive: %v", err, w.driver.alive())
	}
	if _, err := os.Stat(filepath.Join(w.dir, layout.Sandbox)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the sandbox is left: %v", err)
	}
	if _, err := client.Connect(w.ctx, w.dir); !errors.Is(err, client.ErrNotRunning) {
		t.Errorf("the shim still serves: %v", err)
	}
	if !strings.Contains(w.logged(), "why=asked") {
		t.Error(w.logged())
	}
	w.quiet()
}

// TestTermLeavesTheVM: after SIGTERM the next shim adopts the VM and starts no second one. Without its directory the VM
// is unreachable and ends.
func TestTermLeavesTheVM(t *testing.T) {
	w := newWorld(t)
	l := w.start(bootstrap.Message{}, nil)
	c := l.connect()
	if err := l.start(c); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := unix.Kill(unix.Getpid(), unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := l.wait(); err != nil || !w.driver.alive() || !strings.Contains(w.logged(), "why=term") {
		t.Fatalf("%v, VM alive: %v\n%s", err, w.driver.alive(), w.logged())
	}

	l = w.start(bootstrap.Message{Adopt: true}, nil)
	c = l.connect()
	st, err := c.Extension.Status(w.ctx, &shimv1.StatusRequest{})
	if err != nil || st.State != "running" || int(st.VmPid) != w.driver.vm.Process().PID || st.Clone {
		t.Errorf("%v, %v", st, err)
	}
	if !slices.Equal(w.driver.asked, []string{"boot", "adopt"}) || len(w.sealed) != 2 {
		t.Errorf("%v, sealed %v", w.driver.asked, w.sealed)
	}
	if _, err := c.Sandbox.StopSandbox(w.ctx, &sandboxv1.StopSandboxRequest{SandboxID: podID}); err != nil || w.driver.alive() {
		t.Errorf("stop: %v", err)
	}
	_, err = c.Sandbox.StartSandbox(w.ctx, &sandboxv1.StartSandboxRequest{SandboxID: podID})
	if err == nil || !strings.Contains(err.Error(), "only one VM") {
		t.Errorf("a sealed shim starts a VM: %v", err)
	}
	c.Close()
	if err := os.Remove(filepath.Join(w.dir, layout.Lock)); err != nil {
		t.Fatal(err)
	}
	if err := l.wait(); err != nil || !strings.Contains(w.logged(), "why=removed") {
		t.Errorf("%v\n%s", err, w.logged())
	}
	w.quiet()
}

// unheard runs a shim with a starter that leaves before the answer.
func (w *world) unheard(m bootstrap.Message) *life {
	gone, apply := make(chan struct{}), w.host.confine
	w.host.confine = func(p confine.Policy) (missing, err error) {
		<-gone
		return apply(p)
	}
	l := w.start(m, nil)
	w.host.confine = apply
	l.near.Close()
	close(gone)
	return l
}

// TestNobodyHears: if the starter leaves before the answer, a new VM is killed, and an adopted one waits for the next
// shim.
func TestNobodyHears(t *testing.T) {
	w := newWorld(t)
	l := w.unheard(bootstrap.Message{})
	if err := l.wait(); err == nil || w.driver.alive() || !strings.Contains(w.logged(), "why=removed") {
		t.Fatalf("%v, VM alive: %v\n%s", err, w.driver.alive(), w.logged())
	}
	l = w.start(bootstrap.Message{}, nil)
	c := l.connect()
	if err := l.start(c); err != nil {
		t.Fatal(err)
	}
	c.Close()
	l.shim.requestEnd(term)
	if err := l.wait(); err != nil {
		t.Fatal(err)
	}
	l = w.unheard(bootstrap.Message{Adopt: true})
	if err := l.wait(); err == nil || !w.driver.alive() {
		t.Errorf("adopted: %v, VM alive: %v", err, w.driver.alive())
	}
	w.quiet()
}

// TestStrangersMessage: a malformed bootstrap message starts no shim.
func TestStrangersMessage(t *testing.T) {
	w := newWorld(t)
	near, far, err := bootstrap.Pair()
	if err != nil {
		t.Fatal(err)
	}
	near.Close()
	conn, err := bootstrap.Conn(far)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := (&shim{host: w.host}).run(conn); err == nil || !strings.Contains(err.Error(), "bootstrap message") {
		t.Error(err)
	}
}

// TestStartFails: a shim that lacks something ends, sends the reason to its starter, and leaves no VM.
func TestStartFails(t *testing.T) {
	broken := errors.New("broken")
	directory := func(name string) func(*testing.T, *world) {
		return func(t *testing.T, w *world) {
			// Not empty, so that it cannot be replaced.
			if err := os.MkdirAll(filepath.Join(w.dir, name, "below"), 0o700); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, row := range map[string]struct {
		spoil func(*testing.T, *world)
		adopt bool
		want  string
	}{
		"no directory": {func(_ *testing.T, w *world) { w.dir = filepath.Join(w.dir, "none") }, false, "become the shim of"},
		"no hypervisor": {func(_ *testing.T, w *world) {
			w.host.driver = func() (hypervisor.Driver, []string, error) { return nil, nil, broken }
		}, false, "broken"},
		"no walls": {func(_ *testing.T, w *world) {
			w.host.confine = func(confine.Policy) (missing, err error) { return nil, broken }
		}, false, "confine the shim: broken"},
		"no record":           {directory(layout.VMConfig), false, "store the VM"},
		"no socket":           {directory(layout.API), false, "listen at"},
		"no console":          {directory(layout.Console), false, "open the console log"},
		"nothing to adopt":    {func(*testing.T, *world) {}, true, "adopt the sandbox"},
		"no state of a VM":    {func(t *testing.T, w *world) { store(t, w) }, true, layout.Sandbox},
		"nothing of its past": {directory(layout.Sandbox), false, layout.Sandbox},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			row.spoil(t, w)
			l := w.start(bootstrap.Message{Adopt: row.adopt}, nil)
			reply := l.reply()
			if !strings.Contains(reply, row.want) {
				t.Errorf("reply %q", reply)
			}
			if err := l.wait(); err == nil || err.Error() != reply {
				t.Errorf("run returned %v", err)
			}
			if w.driver.alive() {
				t.Error("its VM still runs")
			}
		})
	}
}

// store writes a dead shim's state without its sandbox.
func store(t *testing.T, w *world) {
	st := stored{Version: bootstrap.Version, VM: w.config}
	if err := atomicfile.WriteJSON(filepath.Join(w.dir, layout.VMConfig), st, 0o600, atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
}

// TestMissingWalls: restrictions that the kernel lacks are logged, and the shim runs.
func TestMissingWalls(t *testing.T) {
	w := newWorld(t)
	missing := errors.New("no such wall")
	w.host.confine = func(confine.Policy) (error, error) { return missing, nil }
	w.host.spawn = func(cmd *exec.Cmd, _ confine.Policy) (error, error) { return missing, cmd.Start() }
	l := w.start(bootstrap.Message{}, nil)
	c := l.connect()
	if err := l.start(c); err != nil {
		t.Fatal(err)
	}
	endPod(t, w, c)
	if err := l.wait(); err != nil {
		t.Error(err)
	}
	for _, of := range []string{"the shim", "the VM"} {
		if !strings.Contains(w.logged(), `msg="the kernel cannot fully confine `+of+`" missing="no such wall"`) {
			t.Errorf("the log lacks the missing walls of %s:\n%s", of, w.logged())
		}
	}
}
