package confine

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The rights to read and execute a file, and a directory.
const (
	readFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE
	readDir  = readFile | unix.LANDLOCK_ACCESS_FS_READ_DIR
)

// rightsOf returns the file system rights that a version of Landlock supports. It omits the right to ioctl devices
// (version 5): QEMU needs it for /dev/kvm, and other devices are not reachable.
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
	// ErrPartial is matched when the kernel's Landlock is too old to refuse everything that was requested.
	ErrPartial = errors.New("the kernel has only a part of Landlock")
)

// allScopes isolates processes from those outside. Processes inside may still act on each other.
const allScopes = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL

// Landlock reports whether the kernel's Landlock can refuse what Start requests. It returns nil if it can, an error
// that matches ErrPartial if it is too old, and ErrNone without Landlock.
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

// missing returns an error that names the rules a version lacks. The system call filters refuse all of that too, except
// for p.Signals.
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

// attributes returns the requested restrictions that a version supports, and the size of the struct that it knows. An
// older kernel refuses unknown fields.
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

// landlock restricts the threads on which call makes calls, as far as the kernel can. It returns in lacks what the
// kernel cannot do.
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

// newRuleset creates the ruleset with which a thread restricts itself; it is nil without Landlock. It returns in lacks
// what the kernel cannot do.
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
		return nil // an unreachable path needs no permission
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

// allowFile adds a rule. For a file, it omits the rights that only directories have.
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
