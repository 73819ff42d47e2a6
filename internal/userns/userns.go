// Package userns reads the mappings of other processes' user namespaces, and makes namespaces with the same ones.
package userns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Mappings are the mappings of a user namespace, as lines of three numbers: the first id inside, the first id outside, and
// the count. The zero value is the caller's own namespace.
type Mappings struct {
	UIDs string `json:"uids,omitempty"`
	GIDs string `json:"gids,omitempty"`
}

// ErrNoRoot is returned for mappings without user 0 or group 0.
var ErrNoRoot = errors.New("the user namespace has no root: user 0 and group 0 must be mapped")

// Of returns the mappings of a process's user namespace, with the caller's ids outside.
func Of(pid int) (m Mappings, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	if same, err := Same(filepath.Join(dir, "ns/user")); same || err != nil {
		return m, err
	}
	for name, to := range map[string]*string{"uid_map": &m.UIDs, "gid_map": &m.GIDs} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return m, fmt.Errorf("read the mappings of a user namespace: %w", err)
		}
		*to = clean(string(text))
	}
	if m.UIDs == "" || m.GIDs == "" {
		return m, fmt.Errorf("process %d: %w", pid, ErrNoRoot)
	}
	return m, nil
}

// Same reports whether the user namespace at path is the caller's.
func Same(path string) (bool, error) {
	var its, own unix.Stat_t
	if err := unix.Stat(path, &its); err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if err := unix.Stat("/proc/self/ns/user", &own); err != nil {
		return false, &os.PathError{Op: "stat", Path: "/proc/self/ns/user", Err: err}
	}
	return its.Dev == own.Dev && its.Ino == own.Ino, nil
}

// Initial reports whether the caller is in the initial user namespace. Only root there is the host's root.
func Initial() (bool, error) {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return false, fmt.Errorf("read the mappings of the user namespace: %w", err)
	}
	return clean(string(text)) == "0 0 4294967295", nil
}

// HostRoot reports whether the caller is the host's root. Root of another user namespace, such as the one of an ordinary
// user's podman, is not.
func HostRoot() bool {
	initial, err := Initial()
	return os.Geteuid() == 0 && (initial || err != nil)
}

// Inner reports whether the caller is root of another user namespace than the initial one, and which user of the
// namespace around it that is.
func Inner() (uid int, inner bool) {
	if os.Geteuid() != 0 || HostRoot() {
		return 0, false
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return 0, false
	}
	uid, _, err = Mappings{UIDs: clean(string(text)), GIDs: "0 0 1"}.Root()
	return uid, err == nil
}

// clean sorts the lines, and makes the space between numbers one blank.
func clean(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Root returns the ids outside of the namespace's root.
func (m Mappings) Root() (uid, gid int, err error) {
	for _, one := range []struct {
		text string
		to   *int
	}{{m.UIDs, &uid}, {m.GIDs, &gid}} {
		all, err := parse(one.text)
		if err != nil {
			return 0, 0, err
		}
		at := slices.IndexFunc(all, func(m syscall.SysProcIDMap) bool { return m.ContainerID == 0 })
		if at < 0 {
			return 0, 0, ErrNoRoot
		}
		*one.to = all[at].HostID
	}
	return uid, gid, nil
}

// Enter makes a new process root in a new user namespace with these mappings.
func (m Mappings) Enter(a *syscall.SysProcAttr) error {
	if _, _, err := m.Root(); err != nil {
		return err
	}
	uids, err := parse(m.UIDs)
	if err != nil {
		return err
	}
	gids, err := parse(m.GIDs)
	if err != nil {
		return err
	}
	EnterNew(a, uids, gids)
	return nil
}

// EnterNew is like Enter with parsed mappings.
func EnterNew(a *syscall.SysProcAttr, uids, gids []syscall.SysProcIDMap) {
	a.Cloneflags |= unix.CLONE_NEWUSER
	a.UidMappings, a.GidMappings, a.GidMappingsEnableSetgroups = uids, gids, true
	a.Credential = &syscall.Credential{}
}

func parse(text string) (all []syscall.SysProcIDMap, err error) {
	for line := range strings.Lines(text) {
		var m syscall.SysProcIDMap
		if _, err := fmt.Sscanf(line, "%d %d %d", &m.ContainerID, &m.HostID, &m.Size); err != nil {
			return nil, fmt.Errorf("mapping %.80q: %w", line, err)
		}
		all = append(all, m)
	}
	return all, nil
}
