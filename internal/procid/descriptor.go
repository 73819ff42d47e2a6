package procid

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Descriptor returns a copy of an open file of exactly this process, by its number there. It fails with ErrGone if the
// process has ended, and matches os.ErrPermission for a process that the caller may not trace. The caller closes the
// file.
func (id ID) Descriptor(number int) (*os.File, error) {
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
		return nil, fmt.Errorf("copy descriptor %d of process %d: %w", number, id.PID, err)
	}
	return os.NewFile(uintptr(fd), "descriptor "+strconv.Itoa(number)+" of process "+strconv.Itoa(id.PID)), nil
}
