// Package scratch is the space for the pod's writes: the scratch disk, or memory in a VM without one. It has the
// containers' writable layers and the pod's emptyDirs, and limits both with the disk's project quotas.
package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent/internal/disks"
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// Disk is the name of the scratch disk.
const Disk = "scratch"

const (
	memoryDir = "/run/bulkhead/memory"  // used without a scratch disk
	volumeDir = "/run/bulkhead/volumes" // emptyDirs in memory

	// The directories of the scratch disk.
	rootsDir   = "roots"   // the containers' writable layers
	volumesDir = "volumes" // emptyDirs, by their names
)

// Space is the space. It is safe for concurrent use.
type Space struct {
	disks *disks.Disks
	log   func(format string, args ...any)

	mu       sync.Mutex // held while directories are created; guards the following
	room     int64      // limits the use of the scratch disk, in bytes; 0 means unlimited
	projects uint32     // the last one assigned on the scratch disk
}

// New returns the space on the scratch disk among d. Its messages go to log.
func New(d *disks.Disks, log func(format string, args ...any)) *Space {
	return &Space{disks: d, log: log}
}

// Prepare prepares a scratch disk that is being mounted.
func (s *Space) Prepare(at string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := reuse(at, s.log); err != nil {
		return err
	}
	return ballast(at, s.room)
}

// Limit limits the usable space of the scratch disk to room bytes; 0 means unlimited. A disk that is mounted later gets the
// same limit.
func (s *Space) Limit(room int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room = room
	d := s.disks.Find(Disk)
	if d == nil {
		return nil
	}
	return ballast(d.At, room)
}

// open returns the directory for writes, and the scratch disk's device or "" for memory. The disk stays in place until
// release. The caller holds mu.
func (s *Space) open() (root, device string, release func(), err error) {
	if d, release, err := s.disks.Use(Disk); err == nil {
		return d.At, d.Device, release, nil
	}
	release = func() {}
	if _, err := os.Stat(memoryDir); err == nil {
		return memoryDir, "", release, nil
	}
	if err := os.MkdirAll(memoryDir, 0o711); err != nil {
		return "", "", nil, err
	}
	if err := unix.Mount("memory", memoryDir, "tmpfs", 0, "mode=0711"); err != nil {
		return "", "", nil, errors.Join(err, os.Remove(memoryDir))
	}
	return memoryDir, "", release, layout(memoryDir)
}

// layout creates the directories for containers' roots and volumes.
func layout(at string) error {
	for _, name := range []string{rootsDir, volumesDir} {
		if err := os.MkdirAll(filepath.Join(at, name), 0o711); err != nil {
			return err
		}
	}
	return nil
}

// Layer creates the directory of a container's writable layer. On the scratch disk, room limits its size in bytes; 0 is
// no limit. The disk stays in place until release.
func (s *Space) Layer(id string, room int64) (dir string, release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	root, device, release, err := s.open()
	if err != nil {
		return "", nil, err
	}
	dir = filepath.Join(root, rootsDir, id)
	if err := os.Mkdir(dir, 0o755); err != nil {
		release()
		return "", nil, err
	}
	if err := s.limit(device, dir, room); err != nil {
		release()
		return "", nil, errors.Join(fmt.Errorf("limit its writable layer: %w", err), os.Remove(dir))
	}
	return dir, release, nil
}

// EmptyDir creates a pod's volume at its first use; the containers share it.
func (s *Space) EmptyDir(v containerv1.Dir, group int) (at string, err error) {
	if !containerv1.ValidID(v.Name) {
		return "", fmt.Errorf("name %.128q: %w", v.Name, errdefs.ErrInvalidArgument)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	base, device := volumeDir, ""
	if v.Medium == containerv1.Disk {
		root, on, release, err := s.open()
		if err != nil {
			return "", err
		}
		defer release()
		base, device = filepath.Join(root, volumesDir), on
		if device == "" {
			v.Medium = containerv1.Memory
		}
	}
	if err := os.MkdirAll(base, 0o711); err != nil {
		return "", err
	}
	at = filepath.Join(base, v.Name)
	if err := os.Mkdir(at, 0o700); errors.Is(err, os.ErrExist) {
		return at, nil
	} else if err != nil {
		return "", err
	}
	switch v.Medium {
	case containerv1.Memory:
		err = mount("tmpfs", at, "mode=0700", v.Size)
	case containerv1.HugePages:
		err = mount("hugetlbfs", at, "pagesize=2M", v.Size)
	default:
		if err = s.limit(device, at, v.Size); err != nil {
			err = fmt.Errorf("limit its size: %w", err)
		}
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(at))
	}
	return at, setAccess(at, v.Mode, group)
}

// mount mounts a volume in memory; size 0 means unlimited.
func mount(system, at, options string, size int64) error {
	if size > 0 {
		options += ",size=" + strconv.FormatInt(size, 10)
	}
	return unix.Mount(system, at, system, unix.MS_NODEV, options)
}

// setAccess sets the mode and group of a volume's directory.
func setAccess(at string, mode uint32, group int) error {
	if mode == 0 {
		mode = 0o777
	}
	if group != 0 {
		if err := unix.Chown(at, 0, group); err != nil {
			return err
		}
		mode |= unix.S_ISGID | 0o770
	}
	return unix.Chmod(at, mode) // regardless of the umask
}

// Usage returns the usage of the pod's emptyDirs, as counted by their file systems and the disk's quotas, without
// walking trees. It skips those that cannot be read.
func (s *Space) Usage() (all []agentv1.VolumeUsage) {
	look := map[string]func(at string, u *agentv1.VolumeUsage) bool{volumeDir: ownSystem}
	if d := s.disks.Find(Disk); d != nil {
		look[filepath.Join(d.At, volumesDir)] = s.onDisk
	}
	for base, look := range look {
		list, err := os.ReadDir(base)
		if err != nil {
			continue // no volumes
		}
		for _, entry := range list {
			u := agentv1.VolumeUsage{Name: entry.Name()}
			if len(all) < agentv1.MaxVolumes && entry.IsDir() && containerv1.ValidID(u.Name) && look(filepath.Join(base, u.Name), &u) {
				all = append(all, u)
			}
		}
	}
	return all
}

// ownSystem reads the usage of a volume with its own file system, in memory.
func ownSystem(at string, u *agentv1.VolumeUsage) bool {
	var st unix.Statfs_t
	if unix.Statfs(at, &st) != nil || st.Type != unix.TMPFS_MAGIC && st.Type != unix.HUGETLBFS_MAGIC {
		return false
	}
	size := uint64(st.Bsize)
	u.Capacity, u.Available, u.Used, u.Inodes = st.Blocks*size, st.Bavail*size, (st.Blocks-st.Bfree)*size, st.Files-st.Ffree
	return true
}

// onDisk reads the usage of a volume on the scratch disk. The file system reports a volume's limit as its size.
func (s *Space) onDisk(at string, u *agentv1.VolumeUsage) (ok bool) {
	var st unix.Statfs_t
	if u.Used, u.Inodes, ok = s.Counted(at); !ok || unix.Statfs(at, &st) != nil {
		return false
	}
	u.Capacity, u.Available = st.Blocks*uint64(st.Bsize), st.Bavail*uint64(st.Bsize)
	return true
}
