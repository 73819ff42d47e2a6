// Package fsystest mounts a file system of package fsys on this host, for tests that run as root.
//
// A separate process serves the file system: the test's own program, started again. A process that is its own file
// server hangs when it touches a mapping of a file, since Go's runtime does not know that it waits.
package fsystest

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
	"github.com/bulkhead-project/bulkhead/internal/test/testproc"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

const (
	// maxWrite bounds the data of one request.
	maxWrite = 128 << 10
	// served is the environment variable with the Spec of a server's process.
	served = "BULKHEAD_FSYSTEST_SERVE"
	// private is set in the environment of a process with private mounts.
	private = "BULKHEAD_FSYSTEST_PRIVATE"
)

// Spec is a file system with its roots.
type Spec struct {
	Options fsys.Options
	Roots   []Root
	// As makes another user than root serve the file system.
	As *syscall.Credential `json:"-"`
}

// Root is a root and its path on the host.
type Root struct {
	fsys.Root
	Path string
}

// Main runs a package's tests, or the server of one of them. The tests' mounts end with their process.
func Main(m *testing.M) {
	if spec := os.Getenv(served); spec != "" {
		if err := serve(spec); err != nil {
			fmt.Fprintln(os.Stderr, "fsystest:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(private) != "" || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	tests := exec.Command("/proc/self/exe", os.Args[1:]...) //nolint:noctx // as long as the tests run
	tests.Stdin, tests.Stdout, tests.Stderr = os.Stdin, os.Stdout, os.Stderr
	tests.Env = append(os.Environ(), private+"=1")
	tests.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if err := tests.Run(); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Mount returns a directory with the roots, which is mounted until the test ends.
func Mount(t testing.TB, s Spec) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	dir, err := os.MkdirTemp("", "fsys")
	if err != nil {
		t.Fatal(err)
	}
	fd, err := attach(dir)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	ready, told, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command("/proc/self/exe") //nolint:noctx // until the file system is unmounted
	// With the race detector a process sleeps a second at its end, unless this is set.
	server.Env = append(os.Environ(), served+"="+string(spec), "GORACE=atexit_sleep_ms=0")
	server.Stdout, server.Stderr = os.Stderr, os.Stderr
	server.ExtraFiles = []*os.File{fd, told}
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Credential: s.As}
	wait, err := testproc.Lasting(server)
	if err != nil {
		t.Fatal(err)
	}
	fd.Close()
	told.Close()
	t.Cleanup(func() {
		ready.Close()
		testfs.Unmount(t, dir)
		if err := wait(); err != nil {
			t.Errorf("the server: %v", err)
		}
		if err := os.Remove(dir); err != nil {
			t.Error(err)
		}
	})
	if _, err := io.ReadFull(ready, make([]byte, 1)); err != nil {
		t.Fatalf("the server has not started: %v", err)
	}
	return dir
}

// attach mounts a file system on dir, and returns the file with its requests.
func attach(dir string) (*os.File, error) {
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "/dev/fuse")
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions,max_read=%d", fd, maxWrite)
	if err := unix.Mount("bulkhead", dir, "fuse.bulkhead", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
