package shim_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/shim"
	"github.com/bulkhead-project/bulkhead/shim/uids"
)

// program builds bulkhead-shim once for all tests. BULKHEAD_TEST_SHIM names an existing one, for a user who cannot
// build.
func program(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("BULKHEAD_TEST_SHIM"); path != "" {
		return path
	}
	path, err := build()
	if err != nil {
		t.Fatalf("build bulkhead-shim: %v", err)
	}
	return path
}

var programDir string

var build = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programDir, "bulkhead-shim")
	cmd := testgo.Command(context.Background(), "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path,
		"../cmd/bulkhead-shim")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return path, cmd.Run()
})

func TestMain(m *testing.M) {
	if env := os.Getenv(surrogateEnv); env != "" {
		os.Exit(runSurrogate(env))
	}
	var err error
	if programDir, err = os.MkdirTemp("", "shim"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(programDir)
	os.Exit(code)
}

// options returns options of a pod that boots the guest bundle. Under root it runs as a user of its own.
func options(t testing.TB) shim.Options {
	t.Helper()
	guest := os.Getenv("BULKHEAD_GUEST")
	if guest == "" {
		guest = "../bin/guest"
	}
	guest, err := filepath.Abs(guest)
	if err != nil {
		t.Fatal(err)
	}
	var bundle struct{ Cmdline string }
	b, err := os.ReadFile(filepath.Join(guest, "bundle.json"))
	if err == nil {
		err = json.Unmarshal(b, &bundle)
	}
	if err != nil {
		t.Fatalf("read the guest bundle: %v (make guest)", err)
	}
	root, err := os.MkdirTemp("", "bh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	o := shim.Options{
		ID: strings.Repeat("0123456789abcdef", 4), Instance: "test",
		StateDir: filepath.Join(root, "state"), DataDir: filepath.Join(root, "data"), Path: program(t),
		VM: hypervisor.VMConfig{
			Kernel: filepath.Join(guest, "vmlinux"), Initrd: filepath.Join(guest, "initrd"), Cmdline: bundle.Cmdline,
			Accel: hypervisor.TCG, VCPUs: 1, Memory: 256, MaxMem: 512, Slots: 4, Scratch: 1, Network: hypervisor.NetworkNone,
		},
	}
	if os.Geteuid() == 0 {
		dir := filepath.Join(root, "uids")
		uid, err := uids.Reserve(dir, o.ID)
		if err != nil {
			t.Fatal(err)
		}
		o.Owner = &shim.Owner{UID: uid, GID: uid}
	}
	return o
}

// gone waits until a process has ended.
func gone(t testing.TB, what string, pid int) {
	t.Helper()
	id, err := procid.Of(pid)
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := id.Wait(ctx); err != nil {
		t.Errorf("%s %d still runs: %v", what, pid, err)
	}
}
