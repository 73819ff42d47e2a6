package process

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/shim/bootstrap"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// TestPrepareBelievesTheEngine: the engine's VM configuration determines the confinement, even if the pod's user has
// changed the stored one.
func TestPrepareBelievesTheEngine(t *testing.T) {
	dir := t.TempDir()
	forged := stored{
		Version: bootstrap.Version,
		Clone:   true,
		VM:      hypervisor.VMConfig{Kernel: "/etc/shadow", Network: hypervisor.NetworkHostLoopback},
	}
	if err := atomicfile.WriteJSON(filepath.Join(dir, layout.VMConfig), forged, 0o600, atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
	own := hypervisor.VMConfig{Kernel: "vmlinux", Network: hypervisor.NetworkNone}
	s := &shim{m: bootstrap.Message{Adopt: true, StateDir: dir, VM: own}}
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	if s.m.VM != own || !s.m.Clone {
		t.Errorf("VM %+v, clone %v", s.m.VM, s.m.Clone)
	}
	if p := s.policy("/usr/bin/qemu"); !p.NoTCP || len(p.Sockets) != 0 {
		t.Errorf("confined as if it had a network: %+v", p)
	}
}

// TestPolicyReadsNoHome: QEMU in a user's own bin must not get access to the rest of the home.
func TestPolicyReadsNoHome(t *testing.T) {
	home := "/home/somebody"
	p := (&shim{}).vmPolicy(home + "/bin/qemu-system-x86_64")
	for _, dir := range append(p.Read, p.Write...) {
		if rel, err := filepath.Rel(dir, home+"/.ssh/id"); err == nil && filepath.IsLocal(rel) {
			t.Errorf("QEMU may read %s", dir)
		}
	}
	for _, want := range []string{"/bin", "/share", "/lib"} {
		if !slices.Contains(p.Read, home+want) {
			t.Errorf("QEMU may not read %s", home+want)
		}
	}
}
