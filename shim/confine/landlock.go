package confine

import (
	"errors"
	"fmt"
	"os"
	"strings"
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

var (
	// ErrNone is matched when the kernel lacks Landlock.
	ErrNone = errors.New("the kernel lacks Landlock")
	// ErrPartial is matched when the kernel's Landlock is too old to have a rule for
	// all that was to be refused.
	ErrPartial = errors.New("the kernel has only a part of Landlock")
)

// allScopes are walls between processes; who is inside may still do anything to
// who is inside with it.
const allScopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL

// Landlock tells what the kernel's Landlock can refuse of what Start asks for: nil
// for all of it, an error that matches ErrPartial for a part, ErrNone where there is
// none.
func Landlock() error {
	abi, err := version()
	if err != nil {
		return err
	}
	return missing(abi, Policy{NoTCP: true}, allScopes)
}

func version() (int, error) {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("%w: %w", ErrNone, errno)
	}
	return int(abi), nil
}

// missing names what a version has no rule for. The filters of system calls refuse
// all of that too, but for p.Signals.
func missing(abi int, p Policy, scopes uint64) error {
	var without []string
	if abi < 3 {
		without = append(without, "truncation")
	}
	if abi < 4 && p.NoTCP {
		without = append(without, "TCP")
	}
	if abi < 6 && scopes&unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET != 0 {
		without = append(without, "abstract sockets")
	}
	if abi < 6 && scopes&unix.LANDLOCK_SCOPE_SIGNAL != 0 {
		without = append(without, "signals")
	}
	if len(without) == 0 {
		return nil
	}
	err := fmt.Errorf("%w: version %d has no rule for %s, which seccomp alone refuses", ErrPartial, abi, strings.Join(without, ", "))
	if len(p.Signals) > 0 {
		err = fmt.Errorf("%w, but for signals of the numbers %v to the user's other processes", err, p.Signals)
	}
	return err
}

// attributes are what a version can refuse of what is asked for, and how much of them
// it knows: an older kernel refuses fields that it does not know.
func attributes(abi int, p Policy, scopes uint64) (unix.LandlockRulesetAttr, uintptr) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: rightsOf(abi)}
	if p.NoTCP && abi >= 4 {
		attr.Handled_access_net = unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP
	}
	if abi >= 6 {
		attr.Scoped = scopes
	}
	size := unsafe.Offsetof(attr.Handled_access_net)
	if attr.Handled_access_net != 0 {
		size = unsafe.Offsetof(attr.Scoped)
	}
	if attr.Scoped != 0 {
		size = unsafe.Offsetof(attr.Scoped) + unsafe.Sizeof(attr.Scoped)
	}
	return attr, size
}

// landlock restricts the threads that call makes calls on. It puts on what the
// kernel has, or fails, and says what the kernel lacks.
func landlock(p Policy, scopes uint64, call caller) (lacks, err error) {
	ruleset, lacks, err := newRuleset(p, scopes)
	if ruleset == nil {
		return lacks, err
	}
	defer ruleset.Close()
	if err := call(unix.SYS_LANDLOCK_RESTRICT_SELF, ruleset.Fd(), 0, 0); err != nil {
		return nil, fmt.Errorf("restrict: %w", err)
	}
	return lacks, nil
}

// newRuleset makes the rules that a thread restricts itself by, nil where the kernel has
// none, and says what the kernel lacks.
func newRuleset(p Policy, scopes uint64) (ruleset *os.File, lacks, err error) {
	abi, err := version()
	if err != nil {
		return nil, err, nil
	}
	attr, size := attributes(abi, p, scopes)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return nil, nil, fmt.Errorf("create a ruleset: %w", errno)
	}
	ruleset = os.NewFile(fd, "landlock")
	if err := allow(int(fd), attr.Handled_access_fs, p); err != nil {
		ruleset.Close()
		return nil, nil, err
	}
	return ruleset, missing(abi, p, scopes), nil
}

func allow(ruleset int, handled uint64, p Policy) error {
	for _, path := range p.Read {
		if err := allowPath(ruleset, path, readDir); err != nil {
			return err
		}
	}
	for _, path := range p.Unlisted {
		if err := allowPath(ruleset, path, readFile); err != nil {
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
