package shim_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/shim"
)

func TestStartFails(t *testing.T) {
	t.Run("no QEMU", func(t *testing.T) {
		t.Setenv("BULKHEAD_QEMU", "/nonexistent/qemu")
		o := options(t)
		_, err := shim.Start(t.Context(), o)
		var start *shim.StartError
		if !errors.As(err, &start) || !strings.Contains(err.Error(), "BULKHEAD_QEMU") || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v", err)
		}
		nothingLeft(t, o)
	})
	t.Run("no kernel", func(t *testing.T) {
		o := options(t)
		o.VM.Kernel = "/nonexistent/vmlinux"
		if _, err := shim.Start(t.Context(), o); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
		nothingLeft(t, o)
	})
	t.Run("a filter that cannot be installed", func(t *testing.T) {
		o := options(t)
		o.Path = refused(t, o.Path)
		_, err := shim.Start(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), "confine the shim: seccomp: install the filter: operation not permitted") {
			t.Errorf("got %v", err)
		}
		nothingLeft(t, o)
	})
	t.Run("not a shim", func(t *testing.T) {
		o := options(t)
		o.Path = "/bin/false"
		if _, err := shim.Start(t.Context(), o); err == nil || !strings.Contains(err.Error(), "exited during its start") {
			t.Errorf("got %v", err)
		}
		nothingLeft(t, o)
	})
	t.Run("hangs", func(t *testing.T) {
		o := options(t)
		o.Path = "/bin/cat" // reads nothing and ends: the deadline has expired before
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := shim.Start(ctx, o); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
		nothingLeft(t, o)
	})
	t.Run("path too long", func(t *testing.T) {
		o := options(t)
		o.StateDir += strings.Repeat("x", shim.MaxStateDir)
		if _, err := shim.Start(t.Context(), o); err == nil {
			t.Error("accepted")
		}
	})
	t.Run("no shim", func(t *testing.T) {
		if _, err := shim.Connect(t.Context(), t.TempDir()); !errors.Is(err, shim.ErrNotRunning) {
			t.Errorf("got %v", err)
		}
	})
}

// awaitVM waits until the shim has a VM; its guest may still be booting.
func awaitVM(t *testing.T, c *shim.Client) (*shimv1.StatusResponse, error) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		st, err := c.Extension.Status(t.Context(), &shimv1.StatusRequest{})
		if err != nil || st.VmPid != 0 {
			return st, err
		}
		if time.Now().After(deadline) {
			return nil, errors.New("no VM")
		}
	}
}

// refused returns a program that becomes the shim without the right to install filters.
func refused(t *testing.T, shim string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bh")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "refused")
	build := testgo.Command(t.Context(), "build", "-o", path, "./confine/testdata/refused")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	if err := errors.Join(os.Chmod(dir, 0o711), os.Link(shim, filepath.Join(dir, "shim"))); err != nil {
		t.Fatal(err)
	}
	return path
}

func nothingLeft(t *testing.T, o shim.Options) {
	t.Helper()
	for _, dir := range []string{o.StateDir, o.DataDir} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

// TestNoPod: a shim without CreateSandbox serves, excludes a second shim, and ends with its VM on request.
func TestNoPod(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"shutdown", "directory removed"} {
		t.Run(way, func(t *testing.T) {
			o := options(t)
			c, err := shim.Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { cleanUp(t, o) })
			defer c.Close()
			st, err := awaitVM(t, c)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := shim.Adopt(t.Context(), o); err == nil || !strings.Contains(err.Error(), "lock") {
				t.Errorf("a second shim: %v", err)
			}
			if way == "shutdown" {
				_, err = c.Sandbox.ShutdownSandbox(t.Context(), &sandboxv1.ShutdownSandboxRequest{SandboxID: o.ID})
			} else {
				err = os.RemoveAll(o.StateDir)
			}
			if err != nil {
				t.Error(err)
			}
			<-c.Done()
			gone(t, "shim", c.PID())
			gone(t, "VM", int(st.VmPid))
		})
	}
}
