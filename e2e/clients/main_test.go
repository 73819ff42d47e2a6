package clients

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testhost"
)

func TestMain(m *testing.M) {
	if os.Getenv(monitorRole) != "" {
		os.Exit(monitor(os.Args[1:]))
	}
	if testhost.Inside() {
		if err := linkOutside(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(testhost.Run(m))
}

// oci is a runtime under test.
type oci struct {
	name, path string
	vm         bool // its containers run in VMs
}

// runtimes returns the runtimes under test: runc, and bulkhead-oci if it was built.
func runtimes(t *testing.T) []oci {
	t.Helper()
	if !testhost.Inside() {
		t.Skip("only root can create a host")
	}
	path, err := exec.LookPath("runc")
	if err != nil {
		t.Fatalf("%v (hack/setup test installs it)", err)
	}
	all := []oci{{name: "runc", path: path}}
	own := filepath.Join(os.Getenv("BULKHEAD_LIBEXEC"), "bulkhead-oci")
	switch _, err := os.Stat(own); {
	case err == nil:
		all = append(all, oci{name: "bulkhead-oci", path: own, vm: true})
	case !errors.Is(err, fs.ErrNotExist):
		t.Fatal(err)
	}
	return all
}

// vms returns the number of VMs with pods: each has one shim.
func vms(t *testing.T) int { t.Helper(); return len(programs(t, "bulkhead-shim")) }

// until waits for a condition that sends no event.
func until(ctx context.Context, t *testing.T, condition string, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%s: not yet, and %v", condition, context.Cause(ctx))
		}
	}
}
