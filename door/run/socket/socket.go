// Package socket serves a unix socket that is its user's alone, and knows when a client has gone.
package socket

import (
	"context"
	"errors"
	"net"
	"os"
	"syscall"
)

// socket is a listener whose Close removes its file, unless that is another's by
// then: of an engine that has been started since the directory was removed.
type socket struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// Listen serves a unix socket. A file that is there is replaced: who holds the
// engine's lock is the only one to serve it.
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

// private gives a unix socket, before it has a name, the mode that its file will
// have: with another one it would be everybody's for a moment.
func private(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); failed != nil {
		return failed
	}
	return err
}
