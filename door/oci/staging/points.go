package staging

import (
	"errors"
	"os"
	"path/filepath"

	securejoin "github.com/cyphar/filepath-securejoin"
	"github.com/cyphar/filepath-securejoin/pathrs-lite"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// ensure creates a missing mount point in a root, as runc does. Links in the root stay inside it.
func ensure(root string, p convert.MountPoint) error {
	// An image may have a link without a target at /etc/resolv.conf. Then the target is the mount point.
	at, err := securejoin.SecureJoin(root, p.Path)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(at); err == nil {
		return nil
	}
	inside, err := filepath.Rel(root, at)
	if err != nil {
		return err
	}
	if p.Dir {
		dir, err := createDir(root, inside)
		if err != nil {
			return err
		}
		return dir.Close()
	}
	parent, err := createDir(root, filepath.Dir(inside))
	if err != nil {
		return err
	}
	defer parent.Close()
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY | unix.O_CLOEXEC
	fd, err := unix.Openat(int(parent.Fd()), filepath.Base(inside), flags, 0o644)
	if errors.Is(err, unix.EEXIST) {
		return nil
	}
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// createDir opens a directory in a root, and creates it with its parents first if it is missing.
func createDir(root, dir string) (*os.File, error) {
	top, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer top.Close()
	return pathrs.MkdirAllHandle(top, dir, 0o755)
}
