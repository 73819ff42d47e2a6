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
}

// Result tells what a kernel could not do, by the name of the wall; nil means
// that it stands.
type Result struct {
	Privileges, Capabilities, Landlock, Seccomp error
}

// Err is nil if every wall stands.
func (r Result) Err() error {
	var errs []error
	for _, wall := range []struct {
		name string
		err  error
	}{{"no_new_privs", r.Privileges}, {"capabilities", r.Capabilities}, {"landlock", r.Landlock}, {"seccomp", r.Seccomp}} {
		if wall.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", wall.name, wall.err))
		}
	}
	return errors.Join(errs...)
}

// Apply confines the whole process, for good. Each wall is tried whether or not
// another one stands.
func Apply(p Policy) Result {
	var r Result
	r.Privileges = allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	r.Capabilities = dropCapabilities()
	r.Landlock = landlock(p, 0, allThreads)
	r.Seccomp = install(processFilter, p, unix.SECCOMP_FILTER_FLAG_TSYNC)
	return r
}

// caller makes a system call: on all threads, or on this one.
type caller func(number, a, b, c uintptr) error

// allThreads makes a system call on every thread, present and future ones.
func allThreads(number, a, b, c uintptr) error {
	_, _, errno := syscall.AllThreadsSyscall6(number, a, b, c, 0, 0, 0)
	if errno == syscall.ENOTSUP {
		return errors.New("not in a program with cgo")
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
