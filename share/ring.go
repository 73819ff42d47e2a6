package share

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/memfd"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// RingFD is the memory that a server answers large reads through, which it inherits. A server
// that has none there answers over its port alone.
const RingFD = 4

// RingSize is the length of that memory. Pages that nobody has written to take no room.
const RingSize = wire.RingSize

// ErrRing is matched by the error for a file that is no such memory.
var ErrRing = errors.New("not the memory for answers of a share server")

// NewRing makes the memory of one pod, whose length nobody can change. The caller closes it.
func NewRing() (*os.File, error) {
	f, err := memfd.Create("share-ring")
	if err != nil {
		return nil, fmt.Errorf("create the memory for answers: %w", err)
	}
	err = f.Truncate(RingSize)
	if err == nil {
		// The disk's other users have no right to it but by their descriptors.
		err = f.Chmod(0o600)
	}
	if err == nil {
		err = memfd.Seal(f, memfd.Fixed)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("create the memory for answers: %w", err)
	}
	return f, nil
}

// CheckRing returns an error that matches ErrRing for a descriptor of anything but what NewRing
// makes. It may come from a process that is not believed.
func CheckRing(fd int) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRing, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%w: %w", ErrRing, err)
	}
	seals &^= unix.F_SEAL_EXEC // which the kernel adds where vm.memfd_noexec is 1
	if seals != memfd.Fixed || st.Size != RingSize {
		return fmt.Errorf("%w: %d bytes, seals %#x", ErrRing, st.Size, seals)
	}
	return nil
}
