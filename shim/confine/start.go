package confine

import (
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Start starts cmd behind walls of its own, within those of this process: it
// has what p allows of what this process has, may signal nobody but itself,
// reaches no abstract socket, and makes sockets of p.Sockets' families only. So
// it connects to no unix socket, which Landlock cannot forbid; those that it
// inherits work. This process stays as it is. The error is cmd.Start's; the
// Result tells which walls are missing.
func Start(cmd *exec.Cmd, p Policy) (Result, error) {
	var r Result
	var err error
	// A child has the walls of the thread that forks it.
	onLostThread(func() {
		r.Privileges = thisThread(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
		r.Landlock = landlock(p, unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET|unix.LANDLOCK_SCOPE_SIGNAL, thisThread)
		r.Seccomp = install(func(arch uint32) filter { return childFilter(arch, p.Sockets) }, 0)
		err = cmd.Start()
	})
	return r, err
}

// onLostThread calls f on a thread that ends with it. It is never the first
// one: that would live on, and others judge a process by its first thread.
func onLostThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // locked, which ends the thread
		}
		onLostThread(f) // on another one, while this goroutine holds the first
		runtime.UnlockOSThread()
	}()
	<-done
}

// childFilter is for a program that Start starts, above the process's own.
func childFilter(arch uint32, families []int) filter {
	f := newFilter(arch)
	f.refuseOthers(unix.SYS_SOCKET, families)
	// A pair of datagram sockets could be connected elsewhere.
	f.refuse(unix.SYS_SOCKETPAIR, unix.EPERM)
	f.refuseFlags(unix.SYS_CLONE, newNamespaces)
	f.refuse(unix.SYS_CLONE3, unix.ENOSYS)
	return f.allow()
}

func thisThread(number, a, b, c uintptr) error {
	if _, _, errno := unix.Syscall6(number, a, b, c, 0, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
