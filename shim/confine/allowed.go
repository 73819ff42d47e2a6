package confine

import "golang.org/x/sys/unix"

// vmCalls are the system calls that QEMU 7.2 to 10 may make with the C libraries of Debian 12 and 13: those in a
// trace of it under this project's use, and its libraries' fallbacks. vmFilter also checks the arguments of some.
// All other calls fail with EPERM. Calls newer than this package fail with ENOSYS, so that a library falls back.
var vmCalls = []uint32{
	// Memory.
	unix.SYS_BRK, unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MREMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MSYNC,
	unix.SYS_MEMBARRIER, unix.SYS_GET_MEMPOLICY,
	// Opening files: programs, firmware, devices.
	unix.SYS_OPENAT, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_STATFS, unix.SYS_FSTATFS,
	unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_READLINKAT, unix.SYS_GETDENTS64, unix.SYS_GETCWD, unix.SYS_FCHDIR,
	unix.SYS_FCNTL, unix.SYS_IOCTL,
	// Using open files: disks, sockets, the console.
	unix.SYS_READ, unix.SYS_READV, unix.SYS_PREAD64, unix.SYS_PREADV, unix.SYS_PREADV2,
	unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_PWRITE64, unix.SYS_PWRITEV, unix.SYS_PWRITEV2,
	unix.SYS_LSEEK, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE, unix.SYS_FADVISE64, unix.SYS_FSYNC, unix.SYS_FDATASYNC,
	unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_SHUTDOWN, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT,
	unix.SYS_SENDTO, unix.SYS_SENDMSG, unix.SYS_SENDMMSG, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG,
	// Waiting.
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_PPOLL, unix.SYS_PSELECT6, unix.SYS_EVENTFD2, unix.SYS_SIGNALFD4,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_RESTART_SYSCALL,
	// Threads and signals.
	unix.SYS_CLONE, unix.SYS_EXIT, unix.SYS_EXIT_GROUP, unix.SYS_FUTEX, unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_RSEQ,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_SCHED_GETATTR, unix.SYS_GETCPU,
	unix.SYS_TGKILL, unix.SYS_SIGALTSTACK, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN,
	unix.SYS_RT_SIGPENDING, unix.SYS_RT_SIGTIMEDWAIT,
	// Information about itself and the host.
	unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID,
	unix.SYS_GETRESUID, unix.SYS_GETRESGID, unix.SYS_PRLIMIT64, unix.SYS_GETRLIMIT, unix.SYS_GETRUSAGE, unix.SYS_UNAME, unix.SYS_SYSINFO,
	unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_GETRES, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM,
	// Further confinement of itself.
	unix.SYS_PRCTL, unix.SYS_SECCOMP,
}

// socketCalls are the calls for sockets, for a program that may create them.
var socketCalls = []uint32{unix.SYS_SOCKET, unix.SYS_CONNECT, unix.SYS_BIND}

// starting are the additional calls that Start makes, on its thread and in the child, until the program runs. QEMU's
// own filter kills for those that create processes and programs.
var starting = []uint32{
	unix.SYS_EXECVE, unix.SYS_WAIT4, unix.SYS_WAITID, unix.SYS_SETSID, unix.SYS_CHDIR, unix.SYS_DUP3, unix.SYS_PIPE2,
}

// fcntls are the allowed commands of fcntl.
var fcntls = []uint32{
	unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL, unix.F_DUPFD, unix.F_DUPFD_CLOEXEC,
	unix.F_GETLK, unix.F_SETLK, unix.F_OFD_GETLK, unix.F_OFD_SETLK, unix.F_GET_SEALS, unix.F_ADD_SEALS,
}

// prctls are the allowed options of prctl.
var prctls = []uint32{
	unix.PR_SET_NAME, unix.PR_GET_NAME, unix.PR_SET_TIMERSLACK, unix.PR_MCE_KILL, unix.PR_SET_VMA,
	unix.PR_SET_NO_NEW_PRIVS, unix.PR_GET_NO_NEW_PRIVS, unix.PR_GET_SECCOMP, unix.PR_SET_SECCOMP, unix.PR_GET_DUMPABLE,
}

// ioctls are the allowed requests to files, sockets and disks. kvmGroup is the group of the requests to /dev/kvm and
// its descriptors.
var ioctls = []uint32{
	unix.TCGETS, fionRead, fionBIO, fioClex,
	unix.BLKGETSIZE, unix.BLKGETSIZE64, unix.BLKSSZGET, unix.BLKPBSZGET, unix.BLKBSZGET, unix.BLKSECTGET, unix.BLKROGET,
	unix.BLKIOMIN, unix.BLKIOOPT, unix.BLKALIGNOFF, unix.BLKROTATIONAL, unix.BLKDISCARD, unix.BLKDISCARDZEROES, unix.BLKZEROOUT,
	unix.TUNGETFEATURES, unix.TUNGETIFF, unix.TUNSETOFFLOAD, unix.TUNSETSNDBUF, unix.TUNGETVNETHDRSZ, unix.TUNSETVNETHDRSZ,
	unix.TUNSETQUEUE, unix.TUNSETVNETLE, unix.TUNGETVNETBE, unix.TUNSETVNETBE,
}

const (
	fionRead, fionBIO, fioClex = 0x541b, 0x5421, 0x5451
	kvmGroup, ioctlGroup       = 0xae00, 0xff00
)
