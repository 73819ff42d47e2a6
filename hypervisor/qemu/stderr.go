package qemu

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// stderrLimit is the length of the start of QEMU's stderr that is kept, in bytes.
const stderrLimit = 16 << 10

// newStderr creates a file that accepts stderrLimit bytes. A write beyond a sealed size fails, so that neither disk nor
// writer suffer, and no reader is needed.
func newStderr() (*os.File, error) {
	f, err := memfd.Create("bulkhead-stderr")
	if err != nil {
		return nil, fmt.Errorf("create a bounded file for stderr: %w", err)
	}
	err = f.Truncate(stderrLimit)
	if err == nil {
		err = memfd.Seal(f, memfd.Fixed)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("create a bounded file for stderr: %w", err)
	}
	return f, nil
}

// openStderr opens the file of a running process. It returns nil if that is not allowed, or if the process has replaced
// the file.
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

// readStderr returns the end of the file.
func readStderr(f *os.File) string {
	if f == nil {
		return ""
	}
	buf := make([]byte, stderrLimit)
	n, _ := f.ReadAt(buf, 0)
	text := bytes.TrimRight(buf[:n], "\x00\n")
	return hypervisor.Printable(string(text[max(len(text)-tailSize, 0):]))
}
