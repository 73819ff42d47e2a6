package client

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/userns"
)

// TestNamespace: in podman's user namespace, only an engine of that namespace is used.
func TestNamespace(t *testing.T) {
	const outside = "CLIENT_TEST_OUTSIDE"
	if pid, err := strconv.Atoi(os.Getenv(outside)); err == nil {
		if err := ofNamespace(os.Getpid()); err != nil {
			t.Errorf("its own namespace: %v", err)
		}
		if err := ofNamespace(pid); !errors.Is(err, ErrNamespace) || !strings.Contains(err.Error(), "kill "+strconv.Itoa(pid)) {
			t.Errorf("another namespace: got %v", err)
		}
		if err := ofNamespace(1 << 30); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("no process: got %v", err)
		}
		return
	}
	if err := ofNamespace(1 << 30); err != nil {
		t.Errorf("outside: %v", err)
	}
	if initial, err := userns.Initial(); os.Geteuid() != 0 || !initial || err != nil {
		t.Skipf("only the host's root maps other users (%v)", err)
	}
	program, err := os.Open("/proc/self/exe") // the user cannot enter its directory
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	cmd := exec.Command("/proc/self/fd/3", "-test.run=^TestNamespace$")
	cmd.Dir, cmd.Env, cmd.ExtraFiles = "/", []string{outside + "=" + strconv.Itoa(os.Getpid())}, []*os.File{program}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := (userns.Mappings{UIDs: "0 100000 1000", GIDs: "0 100000 1000"}).Enter(cmd.SysProcAttr); err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("inside: %v: %s", err, out)
	}
}
