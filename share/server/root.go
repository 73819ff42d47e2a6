package server

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share"
)

// enterRoot gives this process, which has a mount namespace of its own, an empty root directory with only the directory
// of the shares.
func enterRoot() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("stop the propagation of mounts: %w", err)
	}
	const at = "/proc" // a directory that every host has
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := unix.Chdir(at); err != nil {
		return err
	}
	if err := os.Mkdir("."+share.Dir, 0o755); err != nil {
		return err
	}
	// The old root is then mounted over the new one, and is unmounted.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the host's root: %w", err)
	}
	return unix.Chdir("/")
}

// openDescriptors opens /proc/self/fd as a mount of its own: from there no path leads to the rest of /proc, where other
// processes have roots.
func openDescriptors() (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, "/proc/self/fd", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("descriptors: %w", err)
	}
	return os.NewFile(uintptr(fd), "/proc/self/fd"), nil
}
