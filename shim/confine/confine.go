// Package confine takes away from a process, and from those that it starts,
// what it does not need: privileges, capabilities, files and system calls. It
// works on every thread of a pure Go program (built without cgo).
package confine

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Policy is what a process may still do.
type Policy struct {
	// Read lists what may be read and executed, Write what may also be
	// changed: directories with all below them, or files. What is missing is
	// skipped.
	Read, Write []string
	// Unlisted may be read as well, but no directory there may be opened for
	// reading: one of /proc is as good as a pidfd.
	Unlisted []string
	// ReadFiles may be opened again through /proc/self/fd.
	ReadFiles []*os.File
	// NoTCP forbids to connect and bind TCP sockets.
	NoTCP bool
	// Sockets are the address families of which sockets may be made. After Apply,
	// unix sockets may be made as well.
	Sockets []uint32
	// Signals are those that a program started by Start may send to its threads.
	// On a kernel without Landlock's scopes it may then send them to other
	// processes of its user.
	Signals []uint32
	// KVM lets a program started by Start make the requests of KVM.
	KVM bool
}

// Apply confines the whole process, for good. An error names a wall that the kernel
// has and that could not be put up: a process must not go on without it. What the
// kernel has no wall for is missing, nil if nothing is; it matches ErrNone or
// ErrPartial.
func Apply(p Policy) (missing, err error) {
	if missing, err = first(p, 0, allThreads); err != nil {
		return nil, err
	}
	if err := dropCapabilities(); err != nil {
		return nil, fmt.Errorf("capabilities: %w", err)
	}
	if err := install(processFilter, p, unix.SECCOMP_FILTER_FLAG_TSYNC); err != nil {
		return nil, fmt.Errorf("seccomp: %w", err)
	}
	return missing, nil
}

// first puts up the walls that a filter of system calls would refuse to put up.
func first(p Policy, scopes uint64, call caller) (missing, err error) {
	if err := call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return nil, fmt.Errorf("no_new_privs: %w", err)
	}
	if missing, err = landlock(p, scopes, call); err != nil {
		return nil, fmt.Errorf("landlock: %w", err)
	}
	return missing, nil
}

// caller makes a system call: on all threads, or on this one.
type caller func(number, a, b, c uintptr) error

// allThreads makes a system call on every thread, present and future ones.
func allThreads(number, a, b, c uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(number, a, b, c, 0, 0, 0)
	if errno == syscall.ENOTSUP {
		return errors.New("not possible in a program with cgo")
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// dropCapabilities empties all sets but the bounding one: with no_new_privs no
// program gives any of it back, and the filter refuses new user namespaces, in
// which a process would begin with all of it.
func dropCapabilities() error {
	if err := allThreads(unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0); err != nil {
		return fmt.Errorf("clear the ambient set: %w", err)
	}
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{}
	err := allThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0)
	if err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}
