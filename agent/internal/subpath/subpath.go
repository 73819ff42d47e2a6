// Package subpath opens parts of volumes that the volumes' users may change meanwhile.
package subpath

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// within resolves paths below a directory: no link leads out of it, and the kernel's magic links are refused.
const within = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS

// Open opens a part of a volume, of any kind of file, and optionally creates missing directories. The volume's
// users may change it meanwhile, so each step starts at the directory that the last one opened, and never leaves the
// volume.
func Open(volume, part string, missing bool) (fd int, err error) {
	root, err := unix.Open(volume, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open: %w", err)
	}
	defer unix.Close(root)
	var st unix.Stat_t
	if err := unix.Fstat(root, &st); err != nil {
		return -1, fmt.Errorf("stat: %w", err)
	}
	names := strings.Split(filepath.Clean(part), "/")
	if !filepath.IsLocal(part) {
		return -1, fmt.Errorf("subPath %.200q leaves the volume: %w", part, errdefs.ErrInvalidArgument)
	}
	parent := root
	for i := range names {
		name := strings.Join(names[:i+1], "/")
		fd, err = unix.Openat2(root, name, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: within})
		if missing && errors.Is(err, unix.ENOENT) {
			fd, err = makeDirectory(parent, names[i], st.Mode&0o7777)
		}
		if parent != root {
			unix.Close(parent)
		}
		if err != nil {
			if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ELOOP) {
				err = fmt.Errorf("%w: a link in it leads out of the volume: %w", errdefs.ErrInvalidArgument, err)
			}
			return -1, fmt.Errorf("subPath %.200q: %w", part, err)
		}
		parent = fd
	}
	return fd, nil
}

// makeDirectory creates a directory with exactly that mode and opens it. If another process creates it first, its mode
// stays.
func makeDirectory(parent int, name string, mode uint32) (int, error) {
	made := unix.Mkdirat(parent, name, 0o700)
	if made != nil && !errors.Is(made, unix.EEXIST) {
		return -1, made
	}
	fd, err := unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if made != nil {
		return fd, nil //nolint:nilerr // another process created it; keep its mode
	}
	if err := unix.Fchmod(fd, mode); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
