package procid

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Wait returns nil when the process has ended, or ctx's error. The process need not be a child. No thread blocks.
func (id ID) Wait(ctx context.Context) error {
	f, err := id.Open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return fmt.Errorf("wait for process %d: %w", id.PID, err)
	}
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	if err := raw.Read(ended); err != nil {
		return fmt.Errorf("wait for process %d: %w", id.PID, cause(ctx, err))
	}
	return nil
}

// cause returns ctx's error if ctx has ended, and else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// ended checks a pidfd without waiting; the runtime's poller waits in between.
func ended(pidfd uintptr) bool {
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 0)
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

// Reap waits for the end of a child of this process, and returns its exit status. No thread blocks.
func Reap(pid int) (status unix.WaitStatus, err error) {
	id, err := Of(pid)
	if err == nil {
		err = id.Wait(context.Background())
	}
	if err != nil && !errors.Is(err, ErrGone) { // it may have ended already
		return 0, err
	}
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("reap process %d: %w", pid, err)
		}
		return status, nil
	}
}
