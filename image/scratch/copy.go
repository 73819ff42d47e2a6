package scratch

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// copySparse copies from to to, an empty file, including holes. It clones the file if the file system can, and else
// copies the data.
func copySparse(to, from *os.File) error {
	if unix.IoctlFileClone(int(to.Fd()), int(from.Fd())) == nil {
		return nil
	}
	info, err := from.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); at < info.Size(); {
		start, err := unix.Seek(int(from.Fd()), at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // holes to the end
		}
		if err != nil {
			return fmt.Errorf("find data in %s: %w", from.Name(), err)
		}
		end, err := unix.Seek(int(from.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			return fmt.Errorf("find holes in %s: %w", from.Name(), err)
		}
		if err := copyRange(to, from, start, end); err != nil {
			return fmt.Errorf("copy %s: %w", from.Name(), err)
		}
		at = end
	}
	return to.Truncate(info.Size())
}

func copyRange(to, from *os.File, start, end int64) error {
	in, out := start, start
	for in < end {
		n, err := unix.CopyFileRange(int(from.Fd()), &in, int(to.Fd()), &out, int(end-in), 0)
		if err != nil || n == 0 {
			// Across file systems, or none that can: the plain way.
			_, err := io.Copy(io.NewOffsetWriter(to, in), io.NewSectionReader(from, in, end-in))
			return err
		}
	}
	return nil
}
