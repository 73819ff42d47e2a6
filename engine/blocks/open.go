package blocks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/engine/failure"
)

// ErrInUse is matched by the errors of a block device that somebody else has: another pod, or
// the host, which has mounted it.
var ErrInUse = errors.New("in use")

func inUse(path, by string) error {
	return &failure.Error{Code: codes.FailedPrecondition, Text: fmt.Sprintf("volume %.200q: %s", path, by), Err: ErrInUse}
}

// sector is what the length of a disk is a multiple of, in bytes.
const sector = 512

const (
	// lastWait is how long a disk is waited for: a VM that had it may be about to end.
	lastWait = 3 * time.Second
	// retry is how often it is tried again meanwhile. The end of a lock that may never end
	// has no event.
	retry = 10 * time.Millisecond
)

// Disk is an open block device, or a file that stands for one, with a lock on it: an exclusive
// one, or with others that only read. A block device that is open to be written cannot be mounted
// by the host.
type Disk struct{ *os.File }

// Open opens and locks a disk by a path without links. It waits a moment for one that is taken;
// an error matches ErrInUse then.
func Open(ctx context.Context, path string, readOnly bool) (*Disk, error) {
	until := time.Now().Add(lastWait)
	for {
		d, err := open(path, readOnly)
		if !errors.Is(err, ErrInUse) || time.Now().After(until) {
			return d, err
		}
		select {
		case <-time.After(retry):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func open(path string, readOnly bool) (_ *Disk, err error) {
	how := &unix.OpenHow{Flags: unix.O_RDWR | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_NO_SYMLINKS}
	lock := unix.LOCK_EX
	if readOnly {
		how.Flags, lock = unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, unix.LOCK_SH
	}
	// What it is comes first: to open a FIFO or a terminal does something.
	device, err := judge(path)
	if err != nil {
		return nil, err
	}
	if device && !readOnly {
		how.Flags |= unix.O_EXCL // the kernel's own lock, against the host's mounts
	}
	fd, err := unix.Openat2(unix.AT_FDCWD, path, how)
	if errors.Is(err, unix.EBUSY) {
		return nil, inUse(path, "another pod has it, or this host has mounted it")
	}
	if err != nil {
		return nil, &failure.Error{Code: codeOf(err), Text: fmt.Sprintf("open volume %.200q", path), Err: err}
	}
	d := &Disk{os.NewFile(uintptr(fd), path)}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if err := d.check(readOnly); err != nil {
		return nil, err
	}
	switch err := unix.Flock(fd, lock|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, inUse(path, "another pod has it")
	case err != nil:
		return nil, fmt.Errorf("lock volume %.200q: %w", path, err)
	}
	return d, nil
}

// check looks at what is open: it is not what judge has seen where somebody has swapped it.
func (d *Disk) check(readOnly bool) error {
	if _, err := kindOf(int(d.Fd()), d.Name()); err != nil {
		return err
	}
	size, err := d.Seek(0, 2)
	switch {
	case err != nil:
		return fmt.Errorf("size of volume %.200q: %w", d.Name(), err)
	case size == 0 || size%sector != 0:
		return failure.Invalid("volume %.200q has %d bytes, not a multiple of %d", d.Name(), size, sector)
	}
	info, err := d.Stat()
	if err == nil && info.Mode().IsRegular() && !readOnly && size > slot.Size {
		err = failure.Unsupported("volume %.200q: a file of %d bytes to be written, of at most %d; block devices may be larger",
			d.Name(), size, int64(slot.Size))
	}
	return err
}

// find is the path without links of a disk, which is there.
func find(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", failure.Invalid("volume %.200q is not an absolute path", path)
	}
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", &failure.Error{Code: codeOf(err), Text: fmt.Sprintf("volume %.200q", path), Err: err}
	}
	defer unix.Close(fd)
	if _, err := kindOf(fd, path); err != nil {
		return "", err
	}
	return os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
}

// judge reports whether a path is that of a block device, and refuses what is no disk.
func judge(path string) (device bool, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false, &failure.Error{Code: codeOf(err), Text: fmt.Sprintf("volume %.200q", path), Err: err}
	}
	defer unix.Close(fd)
	return kindOf(fd, path)
}

func kindOf(fd int, path string) (device bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return false, fmt.Errorf("volume %.200q: %w", path, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFBLK:
		return true, nil
	case unix.S_IFREG:
		return false, nil
	}
	return false, failure.Invalid("volume %.200q is neither a block device nor a regular file", path)
}

func codeOf(err error) codes.Code {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ENXIO):
		return codes.NotFound
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM), errors.Is(err, unix.EROFS):
		return codes.PermissionDenied
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENAMETOOLONG):
		return codes.InvalidArgument
	}
	return codes.Internal
}
