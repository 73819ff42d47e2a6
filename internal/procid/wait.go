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
