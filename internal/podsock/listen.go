package podsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen makes a unix socket of mode 0600 at path, in place of what is there. It
// changes the mode of no file by its path, which a confined process may not do.
func Listen(path string) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	l, err := (&net.ListenConfig{Control: private}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return l.(*net.UnixListener), nil
}

// private gives a socket the mode that its file will have.
func private(_, _ string, c syscall.RawConn) error {
	var err error
	failed := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
	return errors.Join(failed, err)
}
