package shares

import (
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// raw is a blocking file whose calls Go's runtime does not know of. It would take the processor from each
// that waits, and look for one when it returns: of a message's way that is a fifth under emulation. So each
// thread that uses one keeps its processor for good, and the process can have no collector, which would
// wait for both.
type raw uintptr

// Read implements io.Reader. At the end it returns io.EOF.
func (f raw) Read(b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(f), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	switch {
	case errno != 0:
		return 0, errno
	case n == 0:
		return 0, io.EOF
	}
	return int(n), nil
}

// ReadAt implements io.ReaderAt, of a disk: of what is read at once and goes beyond its end it is an error.
func (f raw) ReadAt(b []byte, at int64) (int, error) {
	to := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	n, _, errno := unix.RawSyscall6(unix.SYS_PREAD64, uintptr(f), to, uintptr(len(b)), uintptr(at), 0, 0)
	switch {
	case errno != 0:
		return 0, errno
	case int(n) < len(b):
		return int(n), io.ErrUnexpectedEOF
	}
	return int(n), nil
}

// Write implements io.Writer. The port takes less than a frame only when it fails, /dev/fuse all or nothing.
func (f raw) Write(b []byte) (int, error) {
	n, _, errno := unix.RawSyscall(unix.SYS_WRITE, uintptr(f), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	switch {
	case errno != 0:
		return 0, errno
	case int(n) < len(b):
		return int(n), io.ErrShortWrite
	}
	return int(n), nil
}
