package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// vmPatience bounds one call under emulation on a busy host.
const vmPatience = 90 * time.Second

// TestVM runs a sandbox with a real VM through its life.
func TestVM(t *testing.T) {
	if testing.Short() {
		t.Skip("boots a VM: not with -short")
	}
	t.Parallel()
	dir := hypervisortest.Bundle(t)
	bundle, err := guest.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	driver, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	m := hypervisor.VMConfig{
		Kernel: bundle.KernelPath(), Initrd: bundle.InitrdPath(), Cmdline: bundle.Cmdline,
		Accel: hypervisortest.Accel(), VCPUs: 1, Memory: 256, MaxMem: 1024, Slots: 3, Scratch: 1, Network: hypervisor.NetworkNone,
	}
	saved := hypervisortest.Save(t, driver, m, func(vm hypervisor.VM) {
		ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(vmPatience))
		defer cancel()
		s, err := channel.Dial(ctx, vm.Connect, channel.Options{Hello: channel.Hello{Version: agentv1.Version}})
		if err != nil {
			t.Fatal(vm.Explain("reach the agent", err))
		}
		s.Close()
	})
	h := prepare(t)
	var cancel context.CancelFunc
	h.ctx, cancel = context.WithTimeout(context.Background(), testdeadline.For(5*time.Minute))
	t.Cleanup(cancel)
	o := h.options()
	o.BootTimeout, o.CallTimeout = testdeadline.For(vmPatience), testdeadline.For(vmPatience)
	o.StartVM = func(context.Context) (hypervisor.VM, error) { return saved.Clone(t, driver), nil }
	o.Adopt = func(ctx context.Context, r hypervisor.Record) (hypervisor.VM, error) {
		return driver.Adopt(ctx, r, hypervisor.Files{}, hypervisor.Options{Name: "clone"})
	}
	box, err := New(o)
	h.must(err)
	h.use(box)
	config := h.config()
	config.VM, config.MemoryMiB = m, 384
	h.must(box.Create(h.ctx, config, Files{Scratch: scratchDisk(t)}))
	h.must(box.Start(h.ctx))
	st := box.Status()
	t.Logf("phases: %+v", st.Phases)
	if st, err := box.Stats(h.ctx); err != nil || st.Memory.Total < 256<<20 || st.Memory.Total > 384<<20 {
		t.Errorf("the guest's memory: %+v, %v", st.Memory, err)
	}
	disk := busyboxDisk(t)
	launch := func(id string, args ...string) error {
		f, err := os.Open(disk)
		h.must(err)
		h.must(h.box.CreateContainer(h.ctx, ContainerConfig{
			ID: id, Root: containerv1.Image{ID: "busybox"}, RootFile: f, Spec: ociSpec(t, args...),
			Stdio: containerv1.Log{File: "log", Stdin: containerv1.OpenStdin}, Log: h.openLog(id),
		}))
		_, err = h.box.StartProcess(h.ctx, Process{Container: id})
		return err
	}

	h.must(launch("one", "sh", "-c", "echo out; sleep 0.1; echo err >&2; exit 3"))
	if got := h.wait(Process{Container: "one"}); got.Code != 3 || got.Reason != ReasonError {
		t.Errorf("exit %+v", got)
	}
	if diff := cmp.Diff([]string{"stdout F out", "stderr F err"}, h.logged("one")); diff != "" {
		t.Error(diff)
	}
	if err := launch("missing", "no-such-command"); !errors.Is(err, agentv1.ErrNoCommand) {
		t.Errorf("missing command: %v", err)
	}
	if got := h.wait(Process{Container: "missing"}); got.Code != 127 {
		t.Errorf("missing command: %+v", got)
	}

	// The container counts, so that every line is known. The shim is replaced in the middle.
	h.must(launch("count", "sh", "-c", "i=0; while [ $i -lt 3000 ]; do echo line $i; i=$((i+1)); done; cat"))
	id := Process{Container: "count", Exec: "e"}
	stdio := containerv1.Stream{Stdin: containerv1.OpenStdin}
	h.must(h.box.CreateExec(h.ctx, ExecConfig{Process: id, Spec: ociProcess(t, "cat"), Stdio: stdio}))
	out := newBuffer()
	r, w := io.Pipe()
	done := h.attach(id, Streams{Stdin: r, Stdout: out})
	_, err = h.box.StartProcess(h.ctx, id)
	h.must(err)
	_, err = io.WriteString(w, "through and back")
	h.must(err)
	out.until(h, "through and back")
	w.Close()
	h.must(<-done)
	if got := h.wait(id); got.Code != 0 {
		t.Errorf("exec %+v", got)
	}

	h.crash()
	h.box, err = Restore(h.ctx, o, h.logFiles("one", "missing", "count"))
	h.must(err)
	h.use(h.box)
	h.must(h.box.Pause(h.ctx))
	h.must(h.box.Resume(h.ctx))
	h.must(h.box.CloseInput(h.ctx, Process{Container: "count"}))
	if got := h.wait(Process{Container: "count"}); got.Code != 0 || got.Reason != ReasonCompleted {
		t.Errorf("exit %+v", got)
	}
	lines := h.logged("count")
	if len(lines) != 3000 || lines[0] != "stdout F line 0" || lines[2999] != "stdout F line 2999" {
		t.Errorf("%d lines: %.200q", len(lines), lines)
	}

	h.must(launch("sleeper", "sleep", "1000"))
	h.must(h.box.SignalProcess(h.ctx, Process{Container: "sleeper"}, unix.SIGKILL, false))
	if got := h.wait(Process{Container: "sleeper"}); got.Code != 137 || got.Signal != 9 {
		t.Errorf("killed: %+v", got)
	}
	for _, c := range []string{"one", "missing", "count", "sleeper"} {
		if _, err := h.box.DeleteProcess(h.ctx, Process{Container: c}); err != nil {
			t.Error(err)
		}
	}
	h.must(launch("last", "sleep", "1000"))
	qemu := h.box.Status().VM
	h.must(qemu.Signal(unix.SIGKILL))
	reason, err := h.box.WaitStopped(h.ctx)
	h.must(err)
	if got := h.wait(Process{Container: "last"}); reason != ReasonVMKilled || got.Code != 137 || got.Reason != ReasonVMKilled {
		t.Errorf("VM killed: %q, %+v", reason, got)
	}
	h.must(h.box.Delete(h.ctx, false))
}

func scratchDisk(t *testing.T) *os.File {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "scratch.img")
	if err := (scratch.Maker{Templates: dir}).Create(t.Context(), path, 64<<20); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// busyboxDisk returns the path of an image of Debian's busybox.
func busyboxDisk(t *testing.T) string {
	t.Helper()
	root, disk := t.TempDir(), filepath.Join(t.TempDir(), "disk")
	for _, dir := range []string{"bin", "proc", "sys", "dev", "tmp"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatalf("this test needs busybox-static: %v", err)
	}
	if err := os.WriteFile(filepath.Join(root, "bin/busybox"), binary, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, applet := range []string{"sh", "cat", "sleep"} {
		if err := os.Symlink("busybox", filepath.Join(root, "bin", applet)); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("mkfs.erofs", disk, root).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.erofs: %v: %s", err, out)
	}
	if err := os.Truncate(disk, hypervisor.SlotSize); err != nil {
		t.Fatal(err)
	}
	return disk
}

func ociProcess(t *testing.T, args ...string) json.RawMessage {
	return raw(t, map[string]any{"args": args, "cwd": "/", "env": []string{"PATH=/bin"}, "user": map[string]any{"uid": 0, "gid": 0}})
}

func ociSpec(t *testing.T, args ...string) json.RawMessage {
	var namespaces []any
	for _, n := range strings.Fields("pid mount cgroup network ipc uts") {
		namespaces = append(namespaces, map[string]any{"type": n})
	}
	return raw(t, map[string]any{
		"ociVersion": "1.0.2", "root": map[string]any{"path": "rootfs"},
		"process": ociProcess(t, args...),
		"mounts":  []any{map[string]any{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux":   map[string]any{"namespaces": namespaces},
	})
}

func raw(t *testing.T, v any) json.RawMessage {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
