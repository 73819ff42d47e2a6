// Package creds makes system calls with the identity of another user.
package creds

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// ErrIdentity is returned for users and groups that the process cannot act as. It is EOVERFLOW, the kernel's error for
// users that a user namespace does not know.
var ErrIdentity = fmt.Errorf("cannot act as this user: %w", unix.EOVERFLOW)

// As runs do on a thread with the file system user uid and group gid: they own the files that it creates. The process's
// CAP_DAC_OVERRIDE applies to do as well, since the guest has checked permissions already. do must not start goroutines
// that make system calls for it.
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
	if err := setFSUser(int(uid), int(gid)); err != nil {
		return err
	}
	if err := overrideDAC(before); err != nil {
		return err
	}
	return do()
}

// restore gives the thread the process's identity again. If that fails, the thread ends with its goroutine, so that it
// serves nothing with the wrong user.
func restore(before caps) {
	if setFSUser(os.Geteuid(), os.Getegid()) != nil || set(before) != nil {
		runtime.Goexit()
	}
	runtime.UnlockOSThread()
}

// none is the user and group that mean "unchanged".
const none = ^uint32(0)

// setFSUser changes the thread's file system user and group. The kernel does not report whether it did.
func setFSUser(uid, gid int) error {
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

// caps are a thread's capabilities.
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

// overrideDAC restores the capability to ignore modes, which the kernel drops with user 0, if the thread had it before.
func overrideDAC(before caps) error {
	const dac = 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	now, err := get()
	if err != nil {
		return err
	}
	now[0].Effective |= before[0].Effective & dac
	return set(now)
}
