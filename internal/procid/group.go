package procid

import (
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// KillGroup kills the process, and the process group that it leads, if any. A process that a member is just forking
// does not escape. It returns ErrGone if the process has ended.
func (id ID) KillGroup() error {
	f, err := id.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	group, err := unix.Getpgid(id.PID)
	switch {
	case err == nil && group == id.PID:
		err = unix.Kill(-group, unix.SIGKILL)
	case err == nil:
		err = unix.PidfdSendSignal(int(f.Fd()), unix.SIGKILL, nil, 0)
	}
	if errors.Is(err, unix.ESRCH) {
		err = ErrGone
	}
	if err != nil {
		return fmt.Errorf("kill process %d: %w", id.PID, err)
	}
	return nil
}

// Children returns the running child processes, or ErrGone.
func (id ID) Children() ([]ID, error) {
	parent := strconv.Itoa(id.PID)
	children, err := find(func(pid int) bool {
		fields, err := stat(pid)
		return err == nil && fields[1] == parent
	})
	if err == nil && !id.Alive() {
		err = fmt.Errorf("children of process %d: %w", id.PID, ErrGone)
	}
	return children, err
}
