// Package socket serves a unix socket that only its user can open, and detects disconnected clients.
package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// socket is a listener that removes its file on Close, unless the file belongs to a newer engine. That happens if
// the directory was removed and a newer engine started.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// Listen serves a unix socket. It replaces an existing file, because only the holder of the engine's lock serves
// it.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := (&net.ListenConfig{Control: private}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	s := socket{UnixListener: l.(*net.UnixListener), path: path}
	s.SetUnlinkOnClose(false)
	if s.file, err = os.Lstat(path); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return s, nil
}

// Close implements net.Listener.
func (s socket) Close() error {
	var err error
	if now, gone := os.Lstat(s.path); gone == nil && os.SameFile(now, s.file) {
		err = os.Remove(s.path)
	}
	return errors.Join(err, s.UnixListener.Close())
}

// private sets the mode of a unix socket before it is bound, so that its file is never open to other users.
func private(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); failed != nil {
		return failed
	}
	return err
}
