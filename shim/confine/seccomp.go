package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processFilter is the filter for the whole process and its children.
func processFilter(arch uint32, p Policy) filter {
	f := baseFilter(arch)
	f.refuseOthers(unix.SYS_SOCKET, 0, append([]uint32{unix.AF_UNIX}, p.Sockets...)...)
	return f.allow()
}

// baseFilter refuses calls that no process here needs.
func baseFilter(arch uint32) filter {
	f := newFilter(arch)
	f.refuse(unix.EPERM, denied...)
	f.refuse(unix.EPERM, deniedLegacy...)
	f.refuseArguments()
	return f
}

// refuseArguments refuses calls by arguments that no process here needs.
func (f *filter) refuseArguments() {
	f.refuseFlags(unix.SYS_CLONE, 0, newNamespaces)
	// The flags of these lie in memory, where a filter cannot read. Callers fall back to clone and openat.
	f.refuse(unix.ENOSYS, unix.SYS_CLONE3, unix.SYS_OPENAT2)
	// O_TRUNC empties a file even if it is opened for reading. Landlock checks that from version 3 on.
	for number, arg := range opening {
		f.refuseMasked(number, arg, unix.O_TRUNC|unix.O_ACCMODE, unix.O_TRUNC|unix.O_RDONLY)
	}
	// Limits of another process can end it, and so can signals that a descriptor sends.
	f.refuseOthers(unix.SYS_PRLIMIT64, 0, 0)
	f.refuseValues(unix.SYS_FCNTL, 1, unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG)
	f.refuseValues(unix.SYS_IOCTL, 1, fioSetOwn, unix.SIOCSPGRP, unix.TIOCSTI, unix.TIOCLINUX)
	// With MSG_FASTOPEN, a socket of the host's network, such as a published port's listener, can be shut down and then
	// connected elsewhere.
	f.refuseFlags(unix.SYS_SENDTO, 3, unix.MSG_FASTOPEN)
	f.refuseFlags(unix.SYS_SENDMSG, 2, unix.MSG_FASTOPEN)
	f.refuseFlags(unix.SYS_SENDMMSG, 3, unix.MSG_FASTOPEN)
	// A pidfd of a socket's peer could signal that process.
	f.refuseValues(unix.SYS_GETSOCKOPT, 2, unix.SO_PEERPIDFD)
	f.refuseValues(unix.SYS_SETSOCKOPT, 2, unix.SO_PASSPIDFD)
}

var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64,
	"arm64": unix.AUDIT_ARCH_AARCH64,
}

// install installs a filter on this thread, or with TSYNC on all threads.
func install(rules func(arch uint32, p Policy) filter, p Policy, flags uintptr) error {
	program, err := compile(rules, p)
	if err != nil {
		return err
	}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(program)))
	if errno != 0 {
		return fmt.Errorf("install the filter: %w", errno)
	}
	if thread != 0 {
		return fmt.Errorf("install the filter: thread %d has a different filter", thread)
	}
	return nil
}

// compile converts a filter for this architecture to the kernel's form.
func compile(rules func(arch uint32, p Policy) filter, p Policy) (*unix.SockFprog, error) {
	arch, ok := auditArch[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no system call filter for architecture %s", runtime.GOARCH)
	}
	f := rules(arch, p)
	return &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}, nil
}
