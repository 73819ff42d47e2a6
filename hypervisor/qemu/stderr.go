package qemu

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// stderrLimit is how much of QEMU's complaints is kept, in bytes: the first.
const stderrLimit = 16 << 10

// newStderr makes a file that takes stderrLimit bytes and refuses more: a
// write beyond a size that is sealed fails, so neither disk nor writer suffer,
// and no reader is needed.
func newStderr() (*os.File, error) {
	fd, err := unix.MemfdCreate("bulkhead-stderr", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd:stderr")
	err = f.Truncate(stderrLimit)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK|unix.F_SEAL_SEAL)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("make a bounded file for stderr: %w", err)
	}
	return f, nil
}

// openStderr finds the file again in a running process, nil if that is not
// allowed or if the process has put something else in its place.
func openStderr(pid int) *os.File {
	f, err := os.OpenFile(fmt.Sprintf("/proc/%d/fd/2", pid), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		f.Close()
		return nil
	}
	return f
}

// readStderr returns its end.
func readStderr(f *os.File) string {
	if f == nil {
		return ""
	}
	buf := make([]byte, stderrLimit)
	n, _ := f.ReadAt(buf, 0)
	text := bytes.TrimRight(buf[:n], "\x00\n")
	return hypervisor.Printable(string(text[max(len(text)-tailSize, 0):]))
}
