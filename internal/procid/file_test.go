package procid

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFile checks that File returns the process's own open file, and never a file of another process.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cmd := exec.Command("sleep", "60")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	id, err := Of(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	got, err := id.File(3)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	a, errA := f.Stat()
	b, errB := got.Stat()
	if errA != nil || errB != nil || !os.SameFile(a, b) {
		t.Errorf("descriptor 3 is %v, want %s: %v, %v", b, path, errA, errB)
	}
	if flags, err := unix.FcntlInt(got.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("flags of the descriptor: got %#x, %v, want close-on-exec", flags, err)
	}
	other := id
	other.Start++
	for name, tc := range map[string]struct {
		id     ID
		number int
		want   error
	}{
		"a closed descriptor": {id, 77, unix.EBADF},
		"a negative one":      {id, -1, unix.EBADF},
		"another process":     {other, 3, ErrGone},
		"no process":          {ID{}, 3, ErrGone},
	} {
		if f, err := tc.id.File(tc.number); f != nil || !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v, %v, want %v", name, f, err, tc.want)
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // killed
	if f, err := id.File(3); f != nil || !errors.Is(err, ErrGone) {
		t.Errorf("after its end: got %v, %v, want %v", f, err, ErrGone)
	}
}

// TestFileOfStranger checks that a user cannot take files of another user's process.
func TestFileOfStranger(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can act as another user")
	}
	id, err := Of(start(t).Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		// The thread ends with this goroutine, so that its user stays with it. The credentials of the other threads
		// do not change.
		runtime.LockOSThread()
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			done <- errno
			return
		}
		_, err := id.File(0)
		done <- err
	}()
	if err := <-done; !errors.Is(err, fs.ErrPermission) {
		t.Errorf("descriptor of another user's process: got %v, want %v", err, fs.ErrPermission)
	}
}

// TestSelf checks the identity of a process in a process namespace without a /proc of its own.
func TestSelf(t *testing.T) {
	if got, err := Self(); err != nil || got.PID != os.Getpid() || !got.Alive() {
		t.Errorf("Self: got %+v, %v, want pid %d", got, err, os.Getpid())
	}
	if os.Getenv("BULKHEAD_TEST_SELF") != "" {
		id, err := Self()
		fmt.Println("self", os.Getpid(), id.PID, err)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can create a process namespace")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestSelf$")
	cmd.Env = append(os.Environ(), "BULKHEAD_TEST_SELF=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	out, _ := cmd.Output() // its own check fails there
	if want := fmt.Sprintf("self 1 %d <nil>", cmd.Process.Pid); !strings.Contains(string(out), want) {
		t.Errorf("in a process namespace: got %s, want %s", out, want)
	}
}
