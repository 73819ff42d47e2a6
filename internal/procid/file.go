package procid

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Self returns the identity of this process in the namespace of /proc, which other processes see. It differs from
// os.Getpid in a process namespace that has no /proc of its own.
func Self() (ID, error) {
	name, err := os.Readlink("/proc/self")
	if err != nil {
		return ID{}, fmt.Errorf("find this process: %w", err)
	}
	pid, err := strconv.Atoi(name)
	if err != nil {
		return ID{}, fmt.Errorf("find this process: %w", err)
	}
	return Of(pid)
}

// File returns a duplicate of a descriptor of exactly this process, or ErrGone. The error matches unix.EBADF if the
// process has no such descriptor, and fs.ErrPermission if the caller may not trace the process. The caller closes the
// file. The process may replace its descriptor at any time, so the caller must check the type of the
// file.
func (id ID) File(number int) (*os.File, error) {
	process, err := id.Open()
	if err != nil {
		return nil, err
	}
	defer process.Close()
	fd, err := unix.PidfdGetfd(int(process.Fd()), number, 0)
	if errors.Is(err, unix.ESRCH) {
		err = ErrGone
	}
	if err != nil {
		return nil, fmt.Errorf("descriptor %d of process %d: %w", number, id.PID, err)
	}
	return os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d of process %d", number, id.PID)), nil
}
