// Package podsock connects to unix sockets in a directory that belongs to a
// pod's own user, who is taken to be hostile: a machine that has been taken
// over may have put anything there, symbolic links to other sockets first of
// all.
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

// ErrForeign is returned for what is not a socket of the directory's owner,
// served by the owner.
var ErrForeign = errors.New("not a socket of the pod's own")

// Dial connects to the socket name beneath the directory dir; name may lie in
// directories below it. Whom dir itself belongs to must not be able to replace
// it, which its parent says; nothing below it is believed: no link is followed,
// and file and listening process must be dir's owner's. That nobody listens is
// said by os.ErrNotExist or ECONNREFUSED, as by net.Dial.
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
	// The very file that was looked at, whatever has its name by now.
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

// plain leaves out the path that was dialed, which tells nobody anything.
func plain(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	return err
}

// Remove removes the sockets name of a directory that lies directly beneath
// one as Dial's dir, and stays beneath that one. What is not there, or cannot be
// removed, stays.
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

// Peer is the process, with its user, that listens at the other end of conn.
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
