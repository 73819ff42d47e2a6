package shares

import (
	"io"
	"unsafe"

	"golang.org/x/sys/unix"
)

// raw is a blocking file with calls that bypass Go's runtime. The runtime would take the processor from each blocked
// call and search one at its return, which takes a fifth of a message's time under emulation. So each thread that uses
// one keeps its processor forever. The process cannot use the garbage collector, which would wait for those threads.
type raw uintptr

// Read implements io.Reader.
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

// ReadAt implements io.ReaderAt for a disk. A read beyond its end is an error.
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

// Write implements io.Writer. The port writes less than a frame only on failure; /dev/fuse writes all or nothing.
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
