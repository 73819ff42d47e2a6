// Package wholefile reads files with a false size. Files of the kernel's file systems have a size of 0 or of a page,
// and any file may change while it is read.
package wholefile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Most is the most bytes that are read from a file of the kernel.
const Most = 4 << 20

// small is the size up to which a file is read before its size is reported.
const small = 32 << 10

// kernel are the file systems of the kernel.
var kernel = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.CGROUP2_SUPER_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true,
	unix.DEVPTS_SUPER_MAGIC: true, unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true, unix.SECURITYFS_MAGIC: true,
	unix.BPF_FS_MAGIC: true, unix.EFIVARFS_MAGIC: true, unix.SELINUX_MAGIC: true,
}

// Kernel reports whether f lies in a file system of the kernel: sizes there are false, and reading some files has side
// effects.
func Kernel(f *os.File) bool {
	var fs unix.Statfs_t
	//nolint:unconvert // Type is an int32 elsewhere
	return control(f, func(fd int) error { return unix.Fstatfs(fd, &fs) }) == nil && kernel[int64(fs.Type)]
}

// Start reads the content of f, which should have size bytes. If whole, content is all of it. Else content is empty,
// and the caller reads size bytes. The error names a file of the kernel that is too large, or that has its content only
// later.
func Start(f *os.File, size int64) (content []byte, whole bool, err error) {
	own := Kernel(f)
	if size > small && !own {
		return nil, false, nil
	}
	most := Most
	if size > 0 && !own {
		most = small
	}
	buf := make([]byte, 0, small)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n := 0
		err := control(f, func(fd int) (err error) {
			n, err = unix.Pread(fd, buf[len(buf):cap(buf)], int64(len(buf)))
			if errors.Is(err, unix.ESPIPE) {
				n, err = unix.Read(fd, buf[len(buf):cap(buf)])
			}
			return err
		})
		buf = buf[:len(buf)+max(n, 0)]
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return nil, false, errors.New("its content arrives later; read it with a command")
		case err != nil:
			return nil, false, &os.PathError{Op: "read", Path: f.Name(), Err: err}
		case n == 0:
			return buf, true, nil
		case len(buf) > most && own:
			return nil, false, fmt.Errorf("it has more than %d MiB, and its size is unknown; read it with a command", Most>>20)
		case len(buf) > most && size > 0:
			return buf[:size], true, nil // it grows: return the expected size
		case len(buf) > most:
			return buf, true, nil // likewise
		}
	}
}

// control calls do with f's descriptor, without waiting until f is readable.
func control(f *os.File, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if failed := conn.Control(func(fd uintptr) { err = do(int(fd)) }); failed != nil {
		return failed
	}
	return err
}
