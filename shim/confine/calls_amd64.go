package confine

import "golang.org/x/sys/unix"

// opening maps the calls that open a file to the index of their flags argument.
var opening = map[uint32]int{unix.SYS_OPEN: 1, unix.SYS_OPENAT: 2}

// deniedLegacy, sealedLegacy and vmLegacy are calls that newer architectures lack.
var (
	deniedLegacy = []uint32{
		unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
		unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_SYSFS, unix.SYS_USELIB, unix.SYS_USTAT,
	}
	sealedLegacy = []uint32{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_INOTIFY_INIT}
	vmLegacy     = []uint32{
		unix.SYS_ACCESS, unix.SYS_ARCH_PRCTL, unix.SYS_EPOLL_WAIT, unix.SYS_NEWFSTATAT, unix.SYS_POLL, unix.SYS_READLINK, unix.SYS_SELECT,
		unix.SYS_TIME,
	}
)
