package mounts

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// mounted reports whether a path is a mount point. It does not access the mounted file system, which may not respond.
func mounted(at string) (bool, error) {
	dir, err := unix.Open(filepath.Dir(at), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &os.PathError{Op: "open", Path: filepath.Dir(at), Err: err}
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat2(dir, filepath.Base(at), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV,
	})
	switch {
	case errors.Is(err, unix.EXDEV):
		return true, nil
	case err != nil:
		return false, &os.PathError{Op: "openat2", Path: at, Err: err}
	}
	return false, unix.Close(fd)
}
