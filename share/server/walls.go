package server

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/shim/confine"
)

// softMemory is where the collector starts to work harder: 16 large requests, 262,144 files that the guest knows, and
// the memory of a Go program.
const softMemory = 112 << 20

// limit raises the limit of open files to its maximum, bounds the memory, and disables core dumps.
func limit() error {
	debug.SetMemoryLimit(softMemory)
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	l.Cur = l.Max
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return fmt.Errorf("limit of open files: %w", err)
	}
	return confine.NoCore()
}

// capabilities give access to files of all owners, and to the owners of new ones. Root in the guest has the same access
// to a directory of the host that root shares with it.
var capabilities = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID,
	unix.CAP_SETUID, unix.CAP_SETGID,
}

// becomeServer drops every privilege except the capabilities for files, which it keeps as another user. With a negative
// uid it keeps its user, and no capabilities.
func becomeServer(uid int) error {
	if uid < 0 {
		return confine.ChangeUser(os.Geteuid(), os.Getegid(), nil)
	}
	return confine.ChangeUser(uid, uid, capabilities)
}

// wallIn confines the process to the shared directories in dir and the system calls that it needs, permanently. Without
// Landlock in the kernel only the namespace confines its files; the engine reports that.
func wallIn(dir string) error {
	if _, err := confine.Files(confine.Policy{Write: []string{dir}}); err != nil {
		return err
	}
	return confine.Only(calls, confine.AnyFallocate)
}

// calls are the system calls that Go's runtime needs, those on open files, and those that open, create, change and
// remove files. All of the latter take a descriptor.
var calls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_READV, unix.SYS_WRITEV, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_PREADV, unix.SYS_PWRITEV,
	unix.SYS_LSEEK, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_NEWFSTATAT, unix.SYS_FSTATFS, unix.SYS_CLOSE,
	unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_COPY_FILE_RANGE, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_FCNTL, unix.SYS_FLOCK,
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_GETDENTS64, unix.SYS_READLINKAT,
	unix.SYS_MKDIRAT, unix.SYS_MKNODAT, unix.SYS_UNLINKAT, unix.SYS_RENAMEAT2, unix.SYS_LINKAT, unix.SYS_SYMLINKAT,
	unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_UTIMENSAT,
	unix.SYS_FGETXATTR, unix.SYS_FSETXATTR, unix.SYS_FLISTXATTR, unix.SYS_FREMOVEXATTR,
	unix.SYS_SETFSUID, unix.SYS_SETFSGID, unix.SYS_CAPGET, unix.SYS_CAPSET,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MINCORE,
	unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETEUID, unix.SYS_GETEGID, unix.SYS_GETRANDOM,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_SHUTDOWN,
}
