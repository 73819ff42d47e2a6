package blocks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/place"
)

// find returns the path of an existing disk, without links. It must be the block device with that number, or any
// disk for 0.
func find(ctx context.Context, path string, device uint64) (string, error) {
	if !filepath.IsAbs(path) {
		return "", failure.Invalid("volume %.200q is not an absolute path", path)
	}
	n, err := place.Stat(ctx, path)
	if err != nil {
		return "", &failure.Error{Class: classOf(err), Text: fmt.Sprintf("volume %.200q", path), Err: err}
	}
	isDevice, err := isDisk(n.Mode, n.Device, path, device)
	if err != nil {
		return "", err
	}
	if isDevice {
		return nodeOf(n.Device, n.Path), nil
	}
	return n.Path, nil
}

// nodeOf returns the kernel's own node of a block device, or path if the caller cannot open that. Locks on
// different nodes of a device do not exclude each other.
func nodeOf(number uint64, path string) string {
	at := fmt.Sprintf("/sys/dev/block/%d:%d/uevent", unix.Major(number), unix.Minor(number))
	data, err := os.ReadFile(at)
	if err != nil {
		return path
	}
	for line := range strings.Lines(string(data)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME=")
		if !ok || !filepath.IsLocal(name) {
			continue
		}
		var st unix.Stat_t
		node := filepath.Join("/dev", name)
		if unix.Lstat(node, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFBLK && st.Rdev == number &&
			unix.Access(node, unix.R_OK) == nil {
			return node
		}
	}
	return path
}

// isBlockDevice reports whether path is a block device, and refuses files that are not disks.
func isBlockDevice(path string, number uint64) (device bool, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &failure.Error{Class: classOf(err), Text: fmt.Sprintf("volume %.200q", path), Err: err}
	}
	defer unix.Close(fd)
	return kindOf(fd, path, number)
}

func kindOf(fd int, path string, number uint64) (device bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, fmt.Errorf("volume %.200q: %w", path, err)
	}
	return isDisk(st.Mode, st.Rdev, path, number)
}

// isDisk refuses files that are not disks, and block devices with another number than the requested one.
func isDisk(mode uint32, rdev uint64, path string, number uint64) (device bool, err error) {
	switch kind := mode & unix.S_IFMT; {
	case number != 0 && (kind != unix.S_IFBLK || rdev != number):
		return false, failure.New(errdefs.ErrFailedPrecondition, "volume %.200q is no longer the requested block device", path)
	case kind == unix.S_IFBLK:
		return true, nil
	case kind == unix.S_IFREG:
		return false, nil
	}
	return false, failure.Invalid("volume %.200q is neither a block device nor a regular file", path)
}

func classOf(err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENXIO):
		return errdefs.ErrNotFound
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return errdefs.ErrPermissionDenied
	case errors.Is(err, place.ErrSilent):
		return context.DeadlineExceeded
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return errdefs.ErrInvalidArgument
	}
	return errdefs.ErrInternal
}
