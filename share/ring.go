package share

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/memfd"
	"github.com/bulkhead-project/bulkhead/share/wire"
)

// RingFD is the descriptor of the memory for large answers, which a server inherits. Without it the server uses only
// its port.
const RingFD = 4

// RingSize is the length of that memory, in bytes. Unwritten pages use no memory.
const RingSize = wire.RingSize

// ErrRing is matched by the error for a file that is not such a memory.
var ErrRing = errors.New("not the memory for answers of a share server")

// NewRing creates the memory of one pod with a fixed length. The caller closes it.
func NewRing() (*os.File, error) {
	f, err := memfd.Create("share-ring")
	if err != nil {
		return nil, fmt.Errorf("create the memory for answers: %w", err)
	}
	err = f.Truncate(RingSize)
	if err == nil {
		// Other users of the disk may only access it by their descriptors.
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

// CheckRing returns an error that matches ErrRing unless fd is a memory of NewRing. fd may come from an untrusted
// process.
func CheckRing(fd int) error {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRing, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%w: %w", ErrRing, err)
	}
	seals &^= unix.F_SEAL_EXEC // the kernel adds it if vm.memfd_noexec is 1
	if seals != memfd.Fixed || st.Size != RingSize {
		return fmt.Errorf("%w: %d bytes, seals %#x", ErrRing, st.Size, seals)
	}
	return nil
}
