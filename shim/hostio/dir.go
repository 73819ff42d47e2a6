package hostio

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

var (
	// ErrNotServed is returned if no shim serves the directory at the moment.
	ErrNotServed = errors.New("no shim serves the pod")
	// ErrGone is returned if the directory was removed, because the pod was.
	ErrGone = errors.New("the pod is gone")
	// ErrForeign is returned for a file that is not a socket of the directory's owner, served by the owner.
	ErrForeign = errors.New("not a socket of the pod's own")
)

// Dir is a pod's state directory. OpenDir opens it, and Close closes it. Afterwards a caller may change its root and
// its namespaces: Dir looks up no path from the root.
//
// The directory belongs to the pod's own user, who may have put anything there, in particular links to other sockets.
// So no link is followed, and the owner of the directory must own the socket and the process that listens there.
type Dir struct {
	root int // the directory, with O_PATH
	proc int // /proc, with O_PATH
}

// OpenDir opens a directory. Its parent must ensure that the pod's user cannot replace it.
func OpenDir(path string) (*Dir, error) {
	root, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the pod's directory %s: %w", path, err)
	}
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		unix.Close(root)
		return nil, fmt.Errorf("open the pod's directory %s: /proc: %w", path, err)
	}
	return &Dir{root: root, proc: proc}, nil
}

// Close closes the directory. No call may be running.
func (d *Dir) Close() error { return errors.Join(unix.Close(d.root), unix.Close(d.proc)) }

// connect returns a connection to the directory's socket.
func (d *Dir) connect() (*os.File, error) {
	f, err := d.dial()
	switch {
	case err == nil:
		return f, nil
	case d.removed():
		return nil, ErrGone
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ECONNREFUSED), errors.Is(err, unix.EAGAIN): // EAGAIN: its queue is full
		err = fmt.Errorf("%w: %w", ErrNotServed, err)
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		err = fmt.Errorf("%w: %w", ErrForeign, err)
	}
	return nil, fmt.Errorf("connect to %s: %w", Name, err)
}

// removed reports whether the directory was removed.
func (d *Dir) removed() bool {
	var st unix.Stat_t
	return unix.Fstat(d.root, &st) == nil && st.Nlink == 0
}

func (d *Dir) dial() (*os.File, error) {
	socket, err := unix.Openat2(d.root, Name, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(socket)
	var owner, file unix.Stat_t
	if err := errors.Join(unix.Fstat(d.root, &owner), unix.Fstat(socket, &file)); err != nil {
		return nil, err
	}
	if file.Mode&unix.S_IFMT != unix.S_IFSOCK || file.Uid != owner.Uid {
		return nil, fmt.Errorf("%w: mode %o, user %d", ErrForeign, file.Mode, file.Uid)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	// This reaches the very file that was checked, whatever has its name now.
	err = inDirectory(d.proc, func() error {
		return unix.Connect(fd, &unix.SockaddrUnix{Name: "self/fd/" + strconv.Itoa(socket)})
	})
	if err == nil {
		var peer *unix.Ucred
		if peer, err = unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil && peer.Uid != owner.Uid {
			err = fmt.Errorf("%w: user %d listens", ErrForeign, peer.Uid)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), Name), nil
}

// inDirectory runs f on a thread with a working directory of its own. There is no call that connects to a socket below
// an open directory.
func inDirectory(dir int, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil {
			err = unix.Fchdir(dir)
		}
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}
