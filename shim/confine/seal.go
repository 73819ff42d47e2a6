package confine

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Seal takes from this process, which Apply has confined, what it needs no more
// once its sockets are open and its machine runs: to make, name or connect sockets,
// to start programs and to signal processes. It accepts connections, makes threads,
// and may open and so signal the process child. What was made before works on. It is
// for a program without cgo, and needs no Landlock.
func Seal(child int) error {
	code, err := compile(func(arch uint32, _ Policy) filter { return sealFilter(arch, uint32(os.Getpid()), uint32(child)) }, Policy{})
	if err != nil {
		return err
	}
	// Not by TSYNC: the thread that Start has forked on has a filter of its own, and
	// may not have ended yet.
	return allThreads(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(code)))
}

// sealed are the calls that Seal refuses.
var sealed = []uint32{
	unix.SYS_SOCKET, unix.SYS_SOCKETPAIR, unix.SYS_CONNECT, unix.SYS_BIND,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, unix.SYS_INOTIFY_INIT1, unix.SYS_INOTIFY_ADD_WATCH,
}

func sealFilter(arch, self, child uint32) filter {
	f := newFilter(arch)
	f.refuse(unix.EPERM, sealed...)
	f.refuse(unix.EPERM, sealedLegacy...)
	f.requireFlag(unix.SYS_CLONE, 0, unix.CLONE_THREAD)
	f.refuseOthers(unix.SYS_TGKILL, 0, self)
	// A directory of /proc would do for a pidfd, but Landlock lets none be opened.
	f.refuseOthers(unix.SYS_PIDFD_OPEN, 0, child)
	return f.allow()
}
