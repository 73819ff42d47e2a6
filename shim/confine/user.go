package confine

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ChangeUser changes this process to a user and group with the given capabilities, and no way to more. A process that
// is that user already and keeps no capabilities keeps its groups. The program must not use cgo.
func ChangeUser(uid, gid int, capabilities []uint) error {
	// With these bits a change of user keeps the capabilities of all threads.
	const keep = 1<<2 | 1<<4 // SECBIT_NO_SETUID_FIXUP, SECBIT_KEEP_CAPS
	if uid != os.Geteuid() || len(capabilities) > 0 {
		if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_SECUREBITS, keep, 0); err != nil {
			return fmt.Errorf("keep capabilities: %w", err)
		}
		if err := syscall.Setgroups(nil); err != nil {
			return fmt.Errorf("setgroups: %w", err)
		}
		if err := syscall.Setresgid(gid, gid, gid); err != nil {
			return fmt.Errorf("become group %d: %w", gid, err)
		}
		if err := syscall.Setresuid(uid, uid, uid); err != nil {
			return fmt.Errorf("become user %d: %w", uid, err)
		}
	}
	if err := allThreads(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	header := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := &[2]unix.CapUserData{}
	for _, c := range capabilities {
		data[c/32].Effective |= 1 << (c % 32)
		data[c/32].Permitted |= 1 << (c % 32)
	}
	if err := allThreads(unix.SYS_CAPSET, uintptr(unsafe.Pointer(header)), uintptr(unsafe.Pointer(data)), 0); err != nil {
		return fmt.Errorf("capset: %w", err)
	}
	return nil
}

// Files permanently restricts this process to the files that p names, as far as the kernel has Landlock. missing is as
// in Apply.
func Files(p Policy) (missing, err error) { return first(p, 0, allThreads) }
