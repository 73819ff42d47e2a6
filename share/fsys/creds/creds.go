// Package creds makes system calls in the name of another user.
package creds

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrIdentity is of users and groups that the process cannot act as. It is EOVERFLOW, as the kernel has it for those
// that a user namespace does not know.
var ErrIdentity = fmt.Errorf("cannot act as this user: %w", unix.EOVERFLOW)

// As runs do on a thread whose file system user and group are uid and gid: files that it makes belong to them.
// What the process may do by CAP_DAC_OVERRIDE do may as well, since the guest has checked permissions already. do must
// not start goroutines that make system calls for it.
func As(uid, gid uint32, do func() error) error {
	if uid == uint32(os.Geteuid()) && gid == uint32(os.Getegid()) {
		return do()
	}
	if uid == none || gid == none {
		return fmt.Errorf("user %d, group %d: %w", int32(uid), int32(gid), ErrIdentity)
	}
	runtime.LockOSThread()
	before, err := get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer restore(before)
	if err := become(int(uid), int(gid)); err != nil {
		return err
	}
	if err := overrideDAC(before); err != nil {
		return err
	}
	return do()
}

// restore makes the thread the process's own again. One with the wrong user must not serve anything else: it ends with
// its goroutine.
func restore(before caps) {
	if become(os.Geteuid(), os.Getegid()) != nil || set(before) != nil {
		runtime.Goexit()
	}
	runtime.UnlockOSThread()
}

// none is the user and group that stand for "as it is".
const none = ^uint32(0)

// become changes the thread's file system user and group. The kernel does not say whether it did.
func become(uid, gid int) error {
	for _, set := range []struct {
		id int
		do func(int) (int, error)
	}{{gid, unix.SetfsgidRetGid}, {uid, unix.SetfsuidRetUid}} {
		if _, err := set.do(set.id); err != nil {
			return err
		}
		if got, err := set.do(-1); err != nil || got != set.id {
			return fmt.Errorf("user %d, group %d: %w", uid, gid, ErrIdentity)
		}
	}
	return nil
}

// caps are the thread's capabilities.
type caps [2]unix.CapUserData

func get() (caps, error) {
	var c caps
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return c, unix.Capget(&h, &c[0])
}

func set(c caps) error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	return unix.Capset(&h, &c[0])
}

// overrideDAC takes back what the kernel took with user 0: the capability to ignore modes, if the thread had it before.
func overrideDAC(before caps) error {
	const dac = 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	now, err := get()
	if err != nil {
		return err
	}
	now[0].Effective |= before[0].Effective & dac
	return set(now)
}
