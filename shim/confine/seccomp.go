package confine

import (
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processFilter is for the whole process and its children.
func processFilter(arch uint32, p Policy) filter {
	f := baseFilter(arch)
	f.refuseOthers(unix.SYS_SOCKET, 0, append([]uint32{unix.AF_UNIX}, p.Sockets...)...)
	return f.allow()
}

// baseFilter refuses what nobody needs.
func baseFilter(arch uint32) filter {
	f := newFilter(arch)
	f.refuse(unix.EPERM, denied...)
	f.refuse(unix.EPERM, deniedLegacy...)
	f.refuseArguments()
	return f
}

// refuseArguments refuses calls with arguments that nobody needs.
func (f *filter) refuseArguments() {
	f.refuseFlags(unix.SYS_CLONE, 0, newNamespaces)
	// The flags of these lie in memory, where a filter cannot look; callers fall
	// back to clone and openat.
	f.refuse(unix.ENOSYS, unix.SYS_CLONE3, unix.SYS_OPENAT2)
	// To open for reading empties a file, too, with this flag. Landlock sees that
	// from its version 3 on.
	for number, arg := range opening {
		f.refuseMasked(number, arg, unix.O_TRUNC|unix.O_ACCMODE, unix.O_TRUNC|unix.O_RDONLY)
	}
	// Limits of another process end it; so do signals that a descriptor sends.
	f.refuseOthers(unix.SYS_PRLIMIT64, 0, 0)
	f.refuseValues(unix.SYS_FCNTL, 1, unix.F_SETOWN, unix.F_SETOWN_EX, unix.F_SETSIG)
	f.refuseValues(unix.SYS_IOCTL, 1, fioSetOwn, unix.SIOCSPGRP, unix.TIOCSTI, unix.TIOCLINUX)
	// A socket that was made in the host's network, as a published port's listener, can
	// be shut down and connected elsewhere by what is sent first.
	f.refuseFlags(unix.SYS_SENDTO, 3, unix.MSG_FASTOPEN)
	f.refuseFlags(unix.SYS_SENDMSG, 2, unix.MSG_FASTOPEN)
	f.refuseFlags(unix.SYS_SENDMMSG, 3, unix.MSG_FASTOPEN)
	// The process at a socket's other end could be signalled by its descriptor.
	f.refuseValues(unix.SYS_GETSOCKOPT, 2, unix.SO_PEERPIDFD)
	f.refuseValues(unix.SYS_SETSOCKOPT, 2, unix.SO_PASSPIDFD)
}

var auditArch = map[string]uint32{
	"amd64": unix.AUDIT_ARCH_X86_64,
	"arm64": unix.AUDIT_ARCH_AARCH64,
}

// install puts a filter on this thread, or with TSYNC on every thread at once.
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

// compile makes what the kernel takes of a filter for this architecture.
func compile(rules func(arch uint32, p Policy) filter, p Policy) (*unix.SockFprog, error) {
	arch, ok := auditArch[runtime.GOARCH]
	if !ok {
		return nil, fmt.Errorf("no system call filter for architecture %s", runtime.GOARCH)
	}
	f := rules(arch, p)
	return &unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}, nil
}
