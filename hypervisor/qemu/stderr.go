package qemu

import (
	"bytes"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// stderrLimit is how much of QEMU's complaints is kept, in bytes: the first.
const stderrLimit = 16 << 10

// newStderr makes a file that takes stderrLimit bytes and refuses more: a
// write beyond a size that is sealed fails, so neither disk nor writer suffer,
// and no reader is needed.
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
