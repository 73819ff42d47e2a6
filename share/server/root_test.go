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

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// rooted names the process of TestRoot among this test's children.
const rooted = "BULKHEAD_TEST_ROOT"

func TestMain(m *testing.M) {
	if os.Getenv(rooted) != "" {
		if err := look(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// TestRoot: from what a server has open no way leads to the host's files or to the processes in
// its /proc, also where the kernel has no Landlock.
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

// look enters a server's root, and looks for a way out.
func look() error {
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
	// It is still good for what it is there for.
	fd, err := unix.Openat(int(proc.Fd()), strconv.Itoa(int(proc.Fd())), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a descriptor again: %w", err)
	}
	for _, path := range []string{"../status", "../../version", "../../../etc", "../../../../bin"} {
		if fd, err := unix.Openat(fd, path, unix.O_PATH|unix.O_CLOEXEC, 0); err == nil {
			return fmt.Errorf("%s is there: %d", path, fd)
		}
	}
	return nil
}
