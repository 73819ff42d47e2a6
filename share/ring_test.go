package share

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/memfd"
)

// TestRing: the memory's length cannot be changed, and no other file is accepted for it.
func TestRing(t *testing.T) {
	f, err := NewRing()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := CheckRing(int(f.Fd())); err != nil {
		t.Error(err)
	}
	for _, size := range []int64{0, RingSize - 1, RingSize + 1} {
		if err := f.Truncate(size); !errors.Is(err, unix.EPERM) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := f.WriteAt([]byte{1}, RingSize); !errors.Is(err, unix.EPERM) {
		t.Errorf("beyond its end: %v", err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	plain, err := unix.MemfdCreate("plain", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(plain)
	if err := unix.Ftruncate(plain, RingSize); err != nil {
		t.Fatal(err)
	}
	for _, fd := range []int{-1, int(null.Fd()), plain} {
		if err := CheckRing(fd); !errors.Is(err, ErrRing) {
			t.Errorf("descriptor %d: %v", fd, err)
		}
	}
}

// TestRingNoExec: a memory that cannot be made executable is one all the same, as with vm.memfd_noexec.
func TestRingNoExec(t *testing.T) {
	t.Parallel()
	fd, err := unix.MemfdCreate("noexec", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, RingSize); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, memfd.Fixed); err != nil {
		t.Fatal(err)
	}
	if err := CheckRing(fd); err != nil {
		t.Error(err)
	}
}
