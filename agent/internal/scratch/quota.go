package scratch

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// limit bounds the size of a new directory on a device and everything below it, in bytes, by a project quota. If size is
// 0, the usage is only counted, if possible. Directories in memory, without a device, have no quotas. Processes with
// CAP_SYS_RESOURCE in the guest are not bounded. The caller holds mu.
func (s *Space) limit(device, dir string, size int64) error {
	if device == "" {
		return nil
	}
	project, err := freeProject(device, s.projects)
	if err == nil {
		s.projects = project
		err = setProject(dir, project)
	}
	if err != nil && size == 0 {
		s.log("the usage of %s is not counted: %v", dir, err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("set its project: %w", err)
	}
	if size == 0 {
		return nil
	}
	q := quota{hard: uint64(size+1023) / 1024, valid: 1}
	if err := q.call(setQuota, device, project); err != nil {
		return fmt.Errorf("set the quota: %w", err)
	}
	return nil
}

// Counted returns the usage of a directory on the scratch disk, in bytes and files, from its project; ok is false
// without a project.
func (s *Space) Counted(dir string) (bytes, files uint64, ok bool) {
	d := s.disks.Find(Disk)
	if d == nil {
		return 0, 0, false
	}
	project, err := projectOf(dir)
	if err != nil || project == 0 {
		return 0, 0, false
	}
	var q quota
	if q.call(getQuota, d.Device, project) != nil {
		return 0, 0, false
	}
	return q.used, q.files, true
}

// attributes is the kernel's struct fsxattr.
type attributes struct {
	flags, extent, extents, project, copyExtent uint32
	_                                           [8]byte
}

// The ioctls that get and set them, and the flag that makes new files inherit the directory's project.
const (
	getAttributes    = 0x801c581f
	setAttributes    = 0x401c5820
	inheritedProject = 0x200
)

func (x *attributes) call(f *os.File, command uintptr) error {
	if size := unsafe.Sizeof(*x); size != 28 {
		return fmt.Errorf("attributes of %d bytes", size)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), command, uintptr(unsafe.Pointer(x))); errno != 0 {
		return errno
	}
	return nil
}

// setProject assigns a directory and its future contents to a project.
func setProject(dir string, project uint32) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	var x attributes
	if err := x.call(f, getAttributes); err != nil {
		return err
	}
	x.flags |= inheritedProject
	x.project = project
	return x.call(f, setAttributes)
}

// projectOf returns the project of a directory; 0 is none.
func projectOf(dir string) (uint32, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var x attributes
	err = x.call(f, getAttributes)
	return x.project, err
}

// quota is the kernel's struct if_dqblk. Its limits are in units of 1 KiB.
type quota struct {
	hard, soft, used, fileHard, fileSoft, files, time, fileTime uint64
	valid                                                       uint32
}

// The quotactl commands for a disk's project quotas.
const (
	getQuota = 0x800007<<8 | 2
	setQuota = 0x800008<<8 | 2
)

func (q *quota) call(command uintptr, device string, project uint32) error {
	name, err := unix.BytePtrFromString(device)
	if err != nil {
		return err
	}
	_, _, errno := unix.Syscall6(unix.SYS_QUOTACTL, command, uintptr(unsafe.Pointer(name)), uintptr(project),
		uintptr(unsafe.Pointer(q)), 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// maxProjects bounds the search for an unused project.
const maxProjects = 100_000

// freeProject returns an unused project above last. On a disk that an earlier VM has written, some are in use.
func freeProject(device string, last uint32) (uint32, error) {
	for project := last + 1; project < maxProjects; project++ {
		var q quota
		if err := q.call(getQuota, device, project); err != nil {
			return 0, fmt.Errorf("get the quota of project %d: %w", project, err)
		}
		if q.hard == 0 && q.used == 0 && q.files == 0 {
			return project, nil
		}
	}
	return 0, fmt.Errorf("all quota projects below %d are in use", maxProjects)
}
