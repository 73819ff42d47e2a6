// Package attack tries what a compromised program would try on its user's other processes and files.
package attack

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Attempt is one attempted operation; Err is nil if it worked.
type Attempt struct {
	What string
	Err  error
}

// Print prints attempts, one line each.
func Print(attempts ...Attempt) {
	for _, a := range attempts {
		fmt.Printf("%s: %v\n", a.What, a.Err)
	}
}

// Files tries to change a readable file.
func Files(path string) []Attempt {
	open := func(flags int) error {
		fd, err := unix.Open(path, flags, 0)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	return []Attempt{
		{"truncate", unix.Truncate(path, 1)},
		{"empty by opening", open(unix.O_RDONLY | unix.O_TRUNC)},
		{"chmod", unix.Chmod(path, 0o777)},
		{"chmod2", fchmodat2(path)},
		{"chown", unix.Chown(path, os.Getuid(), os.Getgid())},
		{"times", unix.Utimes(path, make([]unix.Timeval, 2))},
		{"times in ns", unix.UtimesNano(path, make([]unix.Timespec, 2))},
		{"attribute", unix.Setxattr(path, "user.bulkhead", []byte("x"), 0)},
		{"attribute of a link", unix.Lsetxattr(path, "user.bulkhead", []byte("x"), 0)},
		{"attribute removed", notMissing(unix.Removexattr(path, "user.bulkhead"))},
		{"attribute by a new call", raw(463, 0, 0, 0)},
	}
}

// Descriptors tries changes through an open file's descriptor.
func Descriptors(fd int) []Attempt {
	return []Attempt{
		{"chmod of a descriptor", unix.Fchmod(fd, 0o600)},
		{"chown of a descriptor", unix.Fchown(fd, os.Getuid(), os.Getgid())},
		{"attribute of a descriptor", unix.Fsetxattr(fd, "user.bulkhead", []byte("x"), 0)},
	}
}

// Processes tries what any process of the same user may do to pid. Signals tries the signals of threads and pidfds.
func Processes(pid int) []Attempt {
	cpu := unix.Rlimit{}
	var mask unix.CPUSet
	_ = unix.SchedGetaffinity(pid, &mask)
	info := [128]byte{8: 0xff, 9: 0xff, 10: 0xff, 11: 0xff} // si_code -1, as sigqueue has it
	pipe := make([]int, 2)
	_ = unix.Pipe2(pipe, unix.O_CLOEXEC)
	return []Attempt{
		{"kill", unix.Kill(pid, 0)},
		{"tkill", raw(unix.SYS_TKILL, uintptr(pid), 0, 0)},
		{"queue a signal", raw(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), 0, uintptr(unsafe.Pointer(&info)))},
		{"limits", unix.Prlimit(pid, unix.RLIMIT_CPU, nil, &cpu)},
		{"affinity", unix.SchedSetaffinity(pid, &mask)},
		{"priority", unix.Setpriority(unix.PRIO_PROCESS, pid, 19)},
		{"owner of a descriptor", fcntl(pipe[0], unix.F_SETOWN, pid)},
		{"signal of a descriptor", fcntl(pipe[0], unix.F_SETSIG, int(unix.SIGKILL))},
		{"owner by ioctl", unix.IoctlSetPointerInt(pipe[0], 0x8901, pid)},
		{"compare", raw(unix.SYS_KCMP, uintptr(os.Getpid()), uintptr(pid), 2)},
		{"shared memory", raw(unix.SYS_SHMGET, 0, 4096, unix.IPC_CREAT|0o600)},
		{"semaphores", raw(unix.SYS_SEMGET, 0, 1, unix.IPC_CREAT|0o600)},
		{"queue", raw(unix.SYS_MSGGET, 0, unix.IPC_CREAT|0o600, 0)},
		{"POSIX queue", mqOpen()},
	}
}

// Signals tries to signal pid like Go's runtime and QEMU signal their own threads, and by a descriptor.
func Signals(pid int) []Attempt {
	fd, err := unix.PidfdOpen(pid, 0)
	attempts := []Attempt{
		{"signal a thread", raw(unix.SYS_TGKILL, uintptr(pid), uintptr(pid), 0)},
		{"pidfd", err},
	}
	if err != nil { // a directory of /proc also works
		fd, _ = unix.Open(fmt.Sprintf("/proc/%d", pid), unix.O_RDONLY|unix.O_DIRECTORY, 0)
	}
	return append(attempts, Attempt{"signal by pidfd", unix.PidfdSendSignal(fd, 0, nil, 0)})
}

// notMissing treats the removal of a missing attribute as a success.
func notMissing(err error) error {
	if err == unix.ENODATA {
		return nil
	}
	return err
}

func fchmodat2(path string) error {
	p, err := unix.BytePtrFromString(path)
	if err != nil {
		return err
	}
	dir := unix.AT_FDCWD
	return raw(unix.SYS_FCHMODAT2, uintptr(dir), uintptr(unsafe.Pointer(p)), 0o777)
}

func fcntl(fd, command, arg int) error {
	_, err := unix.FcntlInt(uintptr(fd), command, arg)
	return err
}

// mqOpen creates a queue and removes it.
func mqOpen() error {
	name := [...]byte{'b', 'h', 0}
	p := uintptr(unsafe.Pointer(&name))
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, p, unix.O_CREAT|unix.O_RDWR, 0o600, 0, 0, 0)
	if errno != 0 {
		return errno
	}
	unix.Close(int(fd))
	return raw(unix.SYS_MQ_UNLINK, p, 0, 0)
}

func raw(number, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall(number, a, b, c); errno != 0 {
		return errno
	}
	return nil
}
