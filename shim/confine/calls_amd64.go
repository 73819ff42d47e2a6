package confine

import "golang.org/x/sys/unix"

// opening are the calls that open a file, each with the argument that holds the
// flags.
var opening = map[uint32]int{unix.SYS_OPEN: 1, unix.SYS_OPENAT: 2}

// deniedLegacy, deniedChildLegacy and sealedLegacy are what newer architectures do without.
var (
	deniedLegacy = []uint32{
		unix.SYS_CHMOD, unix.SYS_CHOWN, unix.SYS_LCHOWN, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT,
		unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_SYSFS, unix.SYS_USELIB, unix.SYS_USTAT,
	}
	deniedChildLegacy = []uint32{
		unix.SYS_CREAT, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_MKNOD,
		unix.SYS_LINK, unix.SYS_SYMLINK, unix.SYS_INOTIFY_INIT,
	}
	sealedLegacy = []uint32{unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_INOTIFY_INIT}
)
