// Package hypervisortest holds the conformance suite of hypervisor drivers and the guest that it runs: the kernel and
// modules of the guest bundle with an init of its own.
package hypervisortest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// Cmdline boots the tests' init. The kernel itself brings new memory online.
const Cmdline = "quiet rdinit=/guestinit noreplace-smp no5lvl cryptomgr.notests memhp_default_state=online_movable"

// VMConfig returns a small VM with the tests' guest: 128 MiB, one virtual CPU, four slots (the first is writable), no
// network. It fails the test if the guest bundle has not been built, and skips it in quick runs.
func VMConfig(t testing.TB) hypervisor.VMConfig {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a VM")
	}
	kernel, initrd := Guest(t)
	return hypervisor.VMConfig{
		Kernel: kernel, Initrd: initrd, Cmdline: Cmdline,
		Accel: Accel(), VCPUs: 1, Memory: 128, MaxMem: 1024,
		Slots: 4, Scratch: 1, Network: hypervisor.NetworkNone,
	}
}

// Accel returns the accelerator of the tests' VMs: BULKHEAD_TEST_ACCEL, or emulation. make hosts runs some tests with
// kvm.
func Accel() hypervisor.Accel {
	if a := os.Getenv("BULKHEAD_TEST_ACCEL"); a != "" {
		return hypervisor.Accel(a)
	}
	return hypervisor.TCG
}

// Guest returns the kernel, and an initrd for the calling test.
func Guest(t testing.TB) (kernel, initrd string) {
	t.Helper()
	program, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return GuestWith(t, map[string][]byte{"guestinit": program})
}

// GuestWith is like Guest with the given programs, each in the root directory under its name.
func GuestWith(t testing.TB, programs map[string][]byte) (kernel, initrd string) {
	t.Helper()
	bundle := Bundle(t)
	base, err := os.ReadFile(filepath.Join(bundle, "initrd"))
	if err != nil {
		t.Fatalf("the guest bundle is not complete (run make guest): %v", err)
	}
	// The kernel unpacks archives one after the other.
	for len(base)%4 != 0 {
		base = append(base, 0)
	}
	initrd = filepath.Join(t.TempDir(), "initrd")
	if err := os.WriteFile(initrd, append(base, archive(programs)...), 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(bundle, "vmlinux"), initrd
}

// Bundle returns the directory of the guest bundle: BULKHEAD_GUEST, or bin/guest of this tree.
func Bundle(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("BULKHEAD_GUEST")
	if dir == "" {
		root, err := testgo.Root()
		if err != nil {
			t.Fatal(err)
		}
		dir = filepath.Join(root, "bin", "guest")
	}
	if _, err := os.Stat(filepath.Join(dir, "vmlinux")); err != nil {
		t.Fatalf("this test needs the guest bundle: run make guest, or set BULKHEAD_GUEST (%v)", err)
	}
	return dir
}

// build compiles the tests' init once per test binary. On a host without a compiler, BULKHEAD_TEST_GUESTINIT names the
// compiled file.
var build = sync.OnceValues(func() ([]byte, error) {
	if made := os.Getenv("BULKHEAD_TEST_GUESTINIT"); made != "" {
		return os.ReadFile(made)
	}
	dir, err := os.MkdirTemp("", "guestinit")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	out := filepath.Join(dir, "guestinit")
	cmd := testgo.Command(context.Background(), "build", "-trimpath", "-ldflags=-s -w", "-o", out,
		"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest/guestinit")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, err
	}
	return os.ReadFile(out)
})
