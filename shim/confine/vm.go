package confine

import "golang.org/x/sys/unix"

// vmFilter is the filter of a running QEMU: it may create threads but no processes.
func vmFilter(arch uint32, p Policy) filter {
	f := newFilter(arch)
	f.requireFlag(unix.SYS_CLONE, 0, unix.CLONE_THREAD)
	return f.only(p)
}

// startFilter is the filter of a program that Start starts. The new process shares its parent's memory until it
// executes the program.
func startFilter(arch uint32, p Policy) filter {
	f := newFilter(arch)
	f.requireFlag(unix.SYS_CLONE, 0, unix.CLONE_THREAD|unix.CLONE_VFORK)
	f.permit(starting...)
	return f.only(p)
}

// only ends QEMU's filter: it may make only the listed calls.
func (f filter) only(p Policy) filter {
	if p.KVM { // the most frequent call
		f.answerIf(unix.SockFilter{Code: opReturn, K: unix.SECCOMP_RET_ALLOW}, unix.SYS_IOCTL, 1,
			unix.SockFilter{Code: opMask, K: ioctlGroup}, unix.SockFilter{Code: opEqual, K: kvmGroup, Jf: 1})
	}
	f.refuseArguments()
	f.answerOthers(refusal(unix.ENOTTY), unix.SYS_IOCTL, 1, ioctls...)
	f.refuseOthers(unix.SYS_FCNTL, 1, fcntls...)
	f.refuseOthers(unix.SYS_PRCTL, 0, prctls...)
	// A filter cannot tell threads' owners, so the program's signals to threads are limited to the necessary ones.
	f.refuseOthers(unix.SYS_TGKILL, 2, p.Signals...)
	for number, arg := range opening {
		f.refuseFlags(number, arg, newFiles)
	}
	if len(p.Sockets) > 0 {
		f.refuseOthers(unix.SYS_SOCKET, 0, p.Sockets...)
		f.permit(socketCalls...)
	}
	f.permit(vmCalls...)
	f.permit(vmLegacy...)
	// Inherited sockets listen already. QEMU would shorten their queues to one connection, so listen returns success
	// without effect.
	f.refuse(0, unix.SYS_LISTEN)
	return append(f, refusal(unix.EPERM))
}
