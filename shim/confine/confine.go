// Package confine removes privileges, capabilities, files and system calls from a process and its children. It works on
// every thread of a pure Go program (built without cgo).
package confine

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Policy lists the rights that a process keeps.
type Policy struct {
	// Read lists paths that may be read and executed; Write lists paths that may also be changed. A directory includes
	// everything below it. Missing paths are skipped.
	Read, Write []string
	// Unlisted lists paths that may be read, except that directories below may not be opened for reading: a directory
	// of /proc works as a pidfd.
	Unlisted []string
	// ReadFiles lists files that may be reopened through /proc/self/fd.
	ReadFiles []*os.File
	// NoTCP refuses to connect and bind TCP sockets.
	NoTCP bool
	// Sockets lists the address families of sockets that may be created. Apply also allows unix sockets.
	Sockets []uint32
	// Signals lists the signals that a program started by Start may send to its threads. Without Landlock's scopes it
	// may also send them to other processes of its user.
	Signals []uint32
	// KVM allows KVM's ioctls to a program started by Start.
	KVM bool
}

// Apply confines the whole process permanently. err names a restriction that the kernel supports and that failed; the
// process must not continue then. missing names restrictions that the kernel lacks; it matches ErrNone or ErrPartial,
// or is nil.
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

// first applies the restrictions that a system call filter would prevent.
func first(p Policy, scopes uint64, call caller) (missing, err error) {
	if err := call(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return nil, fmt.Errorf("no_new_privs: %w", err)
	}
	if missing, err = landlock(p, scopes, call); err != nil {
		return nil, fmt.Errorf("landlock: %w", err)
	}
	return missing, nil
}

// caller makes a system call on all threads, or on this one.
type caller func(number, a, b, c uintptr) error

// allThreads makes a system call on every thread, for future threads too.
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

// dropCapabilities empties all sets but the bounding set. With no_new_privs no program regains capabilities. The filter
// refuses new user namespaces, in which a process would have all of them.
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
