package procid

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Wait returns nil when the process has ended, or ctx's error. It need not be
// a child.
func (id ID) Wait(ctx context.Context) error {
	f, err := id.Open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	ended := make(chan error, 1)
	wakeR, wakeW, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("wait for process %d: %w", id.PID, err)
	}
	defer wakeR.Close()
	go func() { ended <- pollEither(int(f.Fd()), int(wakeR.Fd())) }()
	select {
	case err = <-ended:
		wakeW.Close()
		return err
	case <-ctx.Done():
		wakeW.Close()
		<-ended //nolint:errcheck // that it has ended is what counts
		return fmt.Errorf("wait for process %d: %w", id.PID, ctx.Err())
	}
}

// pollEither blocks until one of two descriptors is ready; closing the other
// end of the wake pipe ends it.
func pollEither(pidfd, wake int) error {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}, {Fd: int32(wake), Events: unix.POLLIN}}
	for {
		_, err := unix.Poll(fds, -1)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// Reap waits for the end of a child of this process, and takes its exit status. No thread
// is blocked meanwhile.
func Reap(pid int) (status unix.WaitStatus, err error) {
	id, err := Of(pid)
	if err == nil {
		err = id.awaitEnd()
	}
	if err != nil && !errors.Is(err, ErrGone) { // it may be over already
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

// awaitEnd waits in the runtime's poller.
func (id ID) awaitEnd() error {
	f, err := id.Open()
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}
