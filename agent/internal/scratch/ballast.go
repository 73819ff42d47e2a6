package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ballastFile occupies the space that the pod may not use.
const ballastFile = ".ballast"

// ballast allocates a file so that at most room bytes of the file system are usable, including the used ones; 0 is no
// limit. It writes no data: the blocks are only reserved, so the host's file does not grow.
func ballast(dir string, room int64) error {
	at := filepath.Join(dir, ballastFile)
	if err := os.Remove(at); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if room <= 0 {
		return nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", dir, err)
	}
	used := int64(st.Blocks-st.Bfree) * st.Bsize
	spare := int64(st.Bavail)*st.Bsize - max(0, room-used)
	if spare <= 0 {
		return nil
	}
	f, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), 0, 0, spare)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("reserve %d bytes of %s: %w", spare, dir, err)
	}
	return nil
}
