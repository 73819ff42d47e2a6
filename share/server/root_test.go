// As bulkhead-share has them.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

package server

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// rooted marks the process of TestRoot among this test's children.
const rooted = "BULKHEAD_TEST_ROOT"

func TestMain(m *testing.M) {
	if os.Getenv(rooted) != "" {
		if err := findEscape(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestRoot: a server's open files lead neither to the host's files nor to processes in its /proc, even without Landlock
// in the kernel.
func TestRoot(t *testing.T) {
	for name, flags := range map[string]uintptr{"root": unix.CLONE_NEWNS, "user": unix.CLONE_NEWNS | unix.CLONE_NEWUSER} {
		cmd := exec.CommandContext(testdeadline.Context(t, 10*time.Second), "/proc/self/exe")
		cmd.Env = append(os.Environ(), rooted+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if flags&unix.CLONE_NEWUSER != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
		}
		if said, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", name, err, said)
		}
	}
}

// findEscape enters a server's root, and looks for an escape.
func findEscape() error {
	if err := limit(); err != nil {
		return err
	}
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return err
	}
	if core.Max != 0 {
		return fmt.Errorf("a core dump may have %d bytes", core.Max)
	}
	proc, err := openDescriptors()
	if err != nil {
		return err
	}
	if err := enterRoot(); err != nil {
		return err
	}
	if entries, err := os.ReadDir("/"); err != nil || len(entries) != 1 {
		return fmt.Errorf("in the root are %v, %w", entries, err)
	}
	// It can still be used for its purpose.
	fd, err := unix.Openat(int(proc.Fd()), strconv.Itoa(int(proc.Fd())), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a descriptor again: %w", err)
	}
	for _, path := range []string{"../status", "../../version", "../../../etc", "../../../../bin"} {
		if fd, err := unix.Openat(fd, path, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			return fmt.Errorf("%s is there: %d", path, fd)
		}
	}
	return writable(proc)
}

// writable reports whether a file can be opened again for writing.
func writable(proc *os.File) error {
	for n := range 1024 {
		fd, err := unix.Openat(int(proc.Fd()), strconv.Itoa(n), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			return err
		}
		if st.Mode&unix.S_IFMT == unix.S_IFREG {
			return fmt.Errorf("descriptor %d can be opened for writing: %+v", n, st)
		}
		unix.Close(fd)
	}
	return nil
}
