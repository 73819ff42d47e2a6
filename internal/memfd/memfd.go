// Package memfd creates files in memory that can be sealed.
package memfd

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Fixed seals a file's size and its seals. Constant seals its content too.
const (
	Fixed    = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	Constant = Fixed | unix.F_SEAL_WRITE
)

// sealTries is the most tries of Seal. The kernel waits about 150 ms each time.
const sealTries = 40

// Create creates an empty file. The name appears only in /proc. The caller closes the file.
func Create(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), "memfd:"+name), nil
}

// Seal adds seals to f. The kernel refuses to seal the content while one of the file's pages is in use, for example
// while the kernel moves pages. It waits 150 ms for that, which is too short on a loaded host, so Seal tries again.
func Seal(f *os.File, seals int) error {
	var err error
	for range sealTries {
		if _, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("seal %s: %w", f.Name(), err)
	}
	return nil
}

// Program returns a copy of the program at path in sealed memory. The name appears only in /proc. The caller closes the
// file.
func Program(name, path string) (*os.File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", name, err)
	}
	f, err := Create(name)
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", name, err)
	}
	if _, err = f.Write(data); err == nil {
		err = f.Chmod(0o511)
	}
	if err == nil {
		err = Seal(f, Constant)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("load %s: %w", name, err)
	}
	return f, nil
}
