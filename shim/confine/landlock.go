package confine

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What the kernel calls reading and executing, of a file and of a directory.
const (
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
	readDir  = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
)

// rightsOf lists the file system rights that each version of Landlock knows.
// The right to ioctl devices (version 5) is left alone: QEMU needs it of
// /dev/kvm, and devices are not reachable otherwise.
func rightsOf(abi int) uint64 {
	rights := uint64(1<<13 - 1)
	if abi >= 2 {
		rights |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		rights |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	return rights
}

// landlock restricts the threads that call makes calls on. scopes are walls
// between processes, of version 6; who is inside may still do anything to who
// is inside with it.
func landlock(p Policy, scopes uint64, call caller) error {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return fmt.Errorf("the kernel lacks it: %w", errno)
	}
	abi := int(version)
	attr := unix.LandlockRulesetAttr{Handled_access_fs: rightsOf(abi)}
	if p.NoTCP && abi >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 6 {
		attr.Scoped = scopes
	}
	// Only the fields that are used, since an older kernel knows no others.
	size := unsafe.Offsetof(attr.Handled_access_net)
	if attr.Handled_access_net != 0 {
		size = unsafe.Offsetof(attr.Scoped)
	}
	if attr.Scoped != 0 {
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("create a ruleset: %w", errno)
	}
	ruleset := os.NewFile(fd, "landlock")
	defer ruleset.Close()
	if err := allow(int(fd), attr.Handled_access_fs, p); err != nil {
		return err
	}
	if err := call(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); err != nil {
		return fmt.Errorf("restrict: %w", err)
	}
	return nil
}

func allow(ruleset int, handled uint64, p Policy) error {
	for _, path := range p.Read {
		if err := allowPath(ruleset, path, readDir); err != nil {
			return err
		}
	}
	for _, path := range p.Write {
		if err := allowPath(ruleset, path, handled); err != nil {
			return err
		}
	}
	for _, f := range p.ReadFiles {
		if err := allowFile(ruleset, int(f.Fd()), readFile); err != nil {
			return fmt.Errorf("allow %s: %w", f.Name(), err)
		}
	}
	return nil
}

func allowPath(ruleset int, path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EACCES) {
		return nil // what cannot be reached needs no permission
	}
	if err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	defer unix.Close(fd)
	if err := allowFile(ruleset, fd, rights); err != nil {
		return fmt.Errorf("allow %s: %w", path, err)
	}
	return nil
}

// allowFile adds a rule, without the rights that only a directory has if it is
// none.
func allowFile(ruleset, fd int, rights uint64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= readFile | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset),
		unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
