package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/confine"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

func newFile(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestVMFiles: a shim with a template's memory clones. With a kernel's files it boots from those files, whatever
// their paths lead to.
func TestVMFiles(t *testing.T) {
	for _, row := range []struct {
		files []string
		asked string
		clone bool
	}{
		{files: nil, asked: "boot"},
		{files: []string{bootstrap.Kernel, bootstrap.Initrd}, asked: "boot"},
		{files: []string{bootstrap.Memory, bootstrap.State}, asked: "clone", clone: true},
	} {
		t.Run(fmt.Sprint(row.files), func(t *testing.T) {
			w := newWorld(t)
			files := map[string]*os.File{}
			for _, name := range row.files {
				files[name] = newFile(t, name)
			}
			l := w.start(bootstrap.Message{}, files)
			c := l.connect()
			if err := l.start(c); err != nil {
				t.Fatal(err)
			}
			st, err := c.Extension.Status(w.ctx, &shimv1.StatusRequest{})
			if err != nil || st.Clone != row.clone || !slices.Equal(w.driver.asked, []string{row.asked}) {
				t.Errorf("driver calls %v, status %v: %v", w.driver.asked, st, err)
			}
			for name, path := range map[string]string{bootstrap.Kernel: w.driver.booted.Kernel, bootstrap.Initrd: w.driver.booted.Initrd} {
				want := map[string]string{bootstrap.Kernel: w.config.Kernel, bootstrap.Initrd: w.config.Initrd}[name]
				if f := l.shim.files[name]; f != nil {
					want = fmt.Sprintf("/proc/self/fd/%d", f.Fd())
				}
				if path != want {
					t.Errorf("the %s is %q, not %q", name, path, want)
				}
			}
			endPod(t, w, c)
			if err := l.wait(); err != nil {
				t.Error(err)
			}
			w.quiet()
		})
	}
}

// TestVMFails: a VM that cannot start fails the pod's start with the reason. The shim reports it and can be ended.
func TestVMFails(t *testing.T) {
	broken := errors.New("broken")
	for name, row := range map[string]struct {
		spoil func(*world)
		want  string
	}{
		"no walls": {func(w *world) {
			w.host.spawn = func(*exec.Cmd, confine.Policy) (missing, err error) { return nil, broken }
		}, "broken"},
		"no seal": {func(w *world) { w.host.seal = func(int) error { return broken } }, "seal the shim: broken"},
		"no VM":   {func(w *world) { w.config.Memory = -1 }, "invalid VM configuration"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			row.spoil(w)
			l := w.start(bootstrap.Message{}, nil)
			c := l.connect()
			if err := l.start(c); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("start: %v", err)
			}
			endPod(t, w, c)
			if err := l.wait(); err != nil || w.driver.alive() {
				t.Errorf("%v, VM alive: %v", err, w.driver.alive())
			}
		})
	}
}

// TestVMDirectory: a VM gets an empty directory of its own, or does not start.
func TestVMDirectory(t *testing.T) {
	w := newWorld(t)
	s := &shim{host: w.host, driver: &w.driver, m: bootstrap.Message{ID: podID, StateDir: w.dir, VM: w.config}}
	left := filepath.Join(w.dir, layout.VM, "left")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := s.start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an earlier VM's socket is left: %v", err)
	}
	for dir, want := range map[string]string{
		filepath.Join(w.dir, "none"): "create the VM's directory",
		w.dir + "/\x00":              "clear the VM's directory",
	} {
		s = &shim{host: w.host, driver: &w.driver, m: bootstrap.Message{ID: podID, StateDir: dir, VM: w.config}}
		if _, err := s.start(w.ctx); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", dir, err)
		}
	}
}

// TestRestoreFiles: an adopted sandbox gets the files that were sent for it; the VM's files stay with the shim.
func TestRestoreFiles(t *testing.T) {
	kernel, scratch, log := newFile(t, "k"), newFile(t, "s"), newFile(t, "l")
	s := &shim{files: map[string]*os.File{bootstrap.Kernel: kernel, bootstrap.Scratch: scratch, bootstrap.LogPrefix + "main": log}}
	r := s.restoreFiles()
	if r.Scratch != scratch || !maps.Equal(r.Logs, map[string]*os.File{"main": log}) {
		t.Errorf("%+v", r)
	}
	if !maps.Equal(s.files, map[string]*os.File{bootstrap.Kernel: kernel}) {
		t.Errorf("the shim keeps %v", s.files)
	}
}

// TestPolicy: devices, sockets and files follow from the VM's configuration.
func TestPolicy(t *testing.T) {
	kernel := newFile(t, "k")
	for _, row := range []struct {
		network      hypervisor.Network
		accel        hypervisor.Accel
		kvm          bool
		sockets, tcp bool
	}{
		{network: hypervisor.NetworkNone, accel: hypervisor.TCG},
		{network: hypervisor.NetworkNone, accel: hypervisor.KVM, kvm: true},
		{network: hypervisor.NetworkRestricted, accel: hypervisor.TCG, tcp: true},
		{network: hypervisor.NetworkUser, accel: hypervisor.TCG, sockets: true, tcp: true},
		{network: hypervisor.NetworkHostLoopback, accel: hypervisor.TCG, sockets: true, tcp: true},
	} {
		s := &shim{files: map[string]*os.File{bootstrap.Kernel: kernel}}
		s.m.VM.Network, s.m.VM.Accel = row.network, row.accel
		p := s.vmPolicy("/usr/bin/vmm")
		if got := slices.Contains(p.Write, "/dev/kvm"); got != row.kvm || slices.Contains(p.Signals, uint32(unix.SIGUSR1)) != row.kvm {
			t.Errorf("%+v: KVM %v, signals %v", row, got, p.Signals)
		}
		if got := slices.Contains(p.Sockets, uint32(unix.AF_INET)); got != row.sockets || p.NoTCP == row.tcp {
			t.Errorf("%+v: sockets %v, no TCP %v", row, p.Sockets, p.NoTCP)
		}
		if got := slices.Contains(p.Read, "/etc/resolv.conf"); got != row.tcp {
			t.Errorf("%+v: it resolves names: %v", row, got)
		}
		if !slices.Equal(p.ReadFiles, []*os.File{kernel}) {
			t.Errorf("%+v: files %v", row, p.ReadFiles)
		}
	}
}
