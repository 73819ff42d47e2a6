package confine

import "golang.org/x/sys/unix"

// machineFilter is for a machine's program that runs: it makes threads and no processes.
func machineFilter(arch uint32, p Policy) filter {
	f := newFilter(arch)
	f.requireFlag(unix.SYS_CLONE, 0, unix.CLONE_THREAD)
	return f.only(p)
}

// startFilter is for a program that Start starts. The new process shares its memory with its maker until it executes that.
func startFilter(arch uint32, p Policy) filter {
	f := newFilter(arch)
	f.requireFlag(unix.SYS_CLONE, 0, unix.CLONE_THREAD|unix.CLONE_VFORK)
	f.permit(starting...)
	return f.only(p)
}

// only ends the filter of a machine's program: it may make the calls that are listed.
func (f filter) only(p Policy) filter {
	if p.KVM { // the most frequent one of all
		f.answerIf(unix.SockFilter{Code: opReturn, K: unix.SECCOMP_RET_ALLOW}, unix.SYS_IOCTL, 1,
			unix.SockFilter{Code: opMask, K: ioctlGroup}, unix.SockFilter{Code: opEqual, K: kvmGroup, Jf: 1})
	}
	f.refuseArguments()
	f.answerOthers(refusal(unix.ENOTTY), unix.SYS_IOCTL, 1, ioctls...)
	f.refuseOthers(unix.SYS_FCNTL, 1, fcntls...)
	f.refuseOthers(unix.SYS_PRCTL, 0, prctls...)
	// A filter does not know whose thread it is: the program's own signals to its
	// threads are limited to those that it needs.
	f.refuseOthers(unix.SYS_TGKILL, 2, p.Signals...)
	for number, arg := range opening {
		f.refuseFlags(number, arg, newFiles)
	}
	if len(p.Sockets) > 0 {
		f.refuseOthers(unix.SYS_SOCKET, 0, p.Sockets...)
		f.permit(socketCalls...)
	}
	f.permit(machineCalls...)
	f.permit(machineLegacy...)
	// The sockets that it inherits listen already. QEMU would shorten their queues to
	// one connection, and is told that it has.
	f.refuse(0, unix.SYS_LISTEN)
	return append(f, refusal(unix.EPERM))
}
