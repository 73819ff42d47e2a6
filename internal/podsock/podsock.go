// Package podsock connects to unix sockets in a directory of a pod's own user. That user is treated as hostile: a
// compromised VM may have put anything there, in particular symbolic links to other sockets.
package podsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// ErrForeign is returned for a file that is not a socket of the directory's owner, served by the owner.
var ErrForeign = errors.New("not a socket of the pod's own")

// Dial connects to the socket name below the directory dir; name may lie in subdirectories. The owner of dir must not
// be able to replace dir itself: its parent must ensure that. Nothing below dir is trusted: no link is followed, and
// the owner of dir must own the file and the listening process. Without a listener the error is os.ErrNotExist or
// ECONNREFUSED, as for net.Dial.
func Dial(ctx context.Context, dir, name string) (*net.UnixConn, error) {
	conn, err := dial(ctx, dir, name)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", filepath.Join(dir, name), err)
	}
	return conn, nil
}

func dial(ctx context.Context, dir, name string) (*net.UnixConn, error) {
	root, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(root)
	socket, err := unix.Openat2(root, name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.EXDEV) {
		return nil, fmt.Errorf("%w: %w", ErrForeign, err)
	}
	if err != nil {
		return nil, err
	}
	defer unix.Close(socket)
	var owner, file unix.Stat_t
	if err := errors.Join(unix.Fstat(root, &owner), unix.Fstat(socket, &file)); err != nil {
		return nil, err
	}
	if file.Mode&unix.S_IFMT != unix.S_IFSOCK || file.Uid != owner.Uid {
		return nil, fmt.Errorf("%w: mode %o, user %d", ErrForeign, file.Mode, file.Uid)
	}
	// This opens the very file that was checked, whatever has its name now.
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(socket))
	if err != nil {
		return nil, plain(err)
	}
	peer, err := Peer(conn.(*net.UnixConn))
	if err == nil && peer.Uid != owner.Uid {
		err = fmt.Errorf("%w: user %d listens", ErrForeign, peer.Uid)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}

// plain removes the dialed path from an error, since it has no meaning for users.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Remove removes sockets of a directory. The parent of the directory is trusted like Dial's dir, and no file outside of
// the parent is removed. Missing files, and those that cannot be removed, are ignored.
func Remove(dir string, names ...string) {
	root, err := os.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return
	}
	defer root.Close()
	for _, name := range names {
		_ = root.Remove(filepath.Join(filepath.Base(dir), name))
	}
}

// Peer returns the process, with its user, that listens at the other end of conn.
func Peer(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("identify the peer: %w", err)
	}
	var peer *unix.Ucred
	ctlErr := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(ctlErr, err); err != nil {
		return nil, fmt.Errorf("identify the peer: %w", err)
	}
	return peer, nil
}
