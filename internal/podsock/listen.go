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

// Listen creates a unix socket of mode 0600 at path, and replaces a file there. It does not change the mode by path,
// because a confined process may not do that.
func Listen(path string) (*net.UnixListener, error) { return listen(path, 0o600) }

// ListenGroup is like Listen, with mode 0660: the group of the directory, if it has the set-group-id bit, may connect. It
// changes the umask of the process for a moment.
func ListenGroup(path string) (*net.UnixListener, error) {
	defer unix.Umask(unix.Umask(0o007))
	return listen(path, 0o660)
}

func listen(path string, mode uint32) (*net.UnixListener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	l, err := (&net.ListenConfig{Control: withMode(mode)}).Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return l.(*net.UnixListener), nil
}

// withMode sets a socket's mode, which its file inherits.
func withMode(mode uint32) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		failed := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), mode) })
		return errors.Join(failed, err)
	}
}
