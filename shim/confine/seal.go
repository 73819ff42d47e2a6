package confine

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Seal removes rights from this process, which Apply has confined, once its sockets are open and its VM runs. It can no
// longer create, bind or connect sockets, start programs, or signal processes other than child. It can still accept
// connections and create threads, and open files and sockets keep working. The program must not use cgo. Seal does not
// need Landlock.
func Seal(child int) error {
	code, err := compile(func(arch uint32, _ Policy) filter { return sealFilter(arch, uint32(os.Getpid()), uint32(child)) }, Policy{})
	if err != nil {
		return err
	}
	// TSYNC would fail: the thread on which Start forked has a filter of its own and may not have ended yet.
	return allThreads(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(code)))
}

// sealed lists the calls that Seal refuses.
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
	// A directory of /proc also works as a pidfd, but Landlock refuses to open those.
	f.refuseOthers(unix.SYS_PIDFD_OPEN, 0, child)
	return f.allow()
}
