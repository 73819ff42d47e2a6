package agent

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// limit bounds what a new directory of the scratch disk may hold, in bytes, with
// all below it: by a quota of its own project. Who has CAP_SYS_RESOURCE in the
// guest is not bounded. The caller holds volumes.
func (a *Agent) limit(dir string, size int64) error {
	a.mu.Lock()
	d := a.disks[scratch]
	a.mu.Unlock()
	if d == nil {
		return fmt.Errorf("there is no scratch disk")
	}
	device, err := findDisk(d.request.Slot)
	if err != nil {
		return err
	}
	a.projects++
	if err := setProject(dir, a.projects); err != nil {
		return fmt.Errorf("set its project: %w", err)
	}
	return setQuota(device, a.projects, size)
}

// setProject makes a directory, and what is made in it, part of a project.
func setProject(dir string, project uint32) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	// The kernel's struct fsxattr and the calls that get and set it.
	var attributes struct {
		flags, extent, extents, project, copyExtent uint32
		_                                           [8]byte
	}
	const (
		get        = 0x801c581f
		set        = 0x401c5820
		inherited  = 0x200
		attributed = unsafe.Sizeof(attributes)
	)
	if attributed != 28 {
		return fmt.Errorf("attributes of %d bytes", attributed)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), get, uintptr(unsafe.Pointer(&attributes))); errno != 0 {
		return errno
	}
	attributes.flags |= inherited
	attributes.project = project
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), set, uintptr(unsafe.Pointer(&attributes))); errno != 0 {
		return errno
	}
	return nil
}

// setQuota bounds what a project's files hold, in bytes.
func setQuota(device string, project uint32, size int64) error {
	// The kernel's struct if_dqblk, in units of 1 KiB.
	quota := struct {
		hard, soft, used, fileHard, fileSoft, files, time, fileTime uint64
		valid                                                       uint32
	}{hard: uint64(size+1023) / 1024, valid: 1}
	const (
		setQuota = 0x800008
		projects = 2
	)
	name, err := unix.BytePtrFromString(device)
	if err != nil {
		return err
	}
	command := uintptr(setQuota<<8 | projects)
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, command, uintptr(unsafe.Pointer(name)), uintptr(project),
		uintptr(unsafe.Pointer(&quota)), 0, 0)
	if errno != 0 {
		return fmt.Errorf("set the quota: %w", errno)
	}
	return nil
}
