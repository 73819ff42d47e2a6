// Package unit asks systemd for transient units: scopes with delegated cgroups, and services. Limits of groups in a scope
// work, and its processes do not end with the session that has started it.
package unit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// The names of systemd on the bus.
const (
	service = "org.freedesktop.systemd1"
	path    = dbus.ObjectPath("/org/freedesktop/systemd1")
	manager = service + ".Manager"
	exists  = service + ".UnitExists"
	absent  = service + ".NoSuchUnit"
)

// callTimeout bounds a job of systemd's. The start of a service ends when the service is ready.
const callTimeout = time.Minute

// mount is where systemd mounts cgroups.
const mount = "/sys/fs/cgroup"

// leaf is the group inside the unit's for the caller itself: in cgroup2 a group with processes cannot have groups with
// limits. Version 1 of cgroups has no such rule, and there the caller is in the unit's group.
const leaf = "own"

// ErrNone is matched if there is no systemd to ask: none runs, or this user has no bus.
var ErrNone = errors.New("systemd cannot be asked for a unit")

// Enter moves this process into a scope with that name, which ends with its last process. If the scope exists, with
// processes of an earlier caller, Enter joins it. A user's scope belongs to the user's manager, which ends with the
// last session unless the user lingers (Lingers).
func Enter(ctx context.Context, name string) error {
	at, err := address()
	if err != nil {
		return err
	}
	group := ""
	if unified(mount) {
		group = "/" + leaf
	}
	if err := enterScope(ctx, at, name, group); err != nil {
		return fmt.Errorf("ask systemd for the unit %s: %w", name, err)
	}
	if group == "" {
		return nil
	}
	if err := descend("/proc/self/cgroup", mount); err != nil {
		return fmt.Errorf("use the unit %s: %w", name, err)
	}
	return nil
}

// enterScope starts the scope with this process. If the scope exists, enterScope moves the process into the given group of
// it, "/own" for example, which must exist. The empty string is the scope's own group.
func enterScope(ctx context.Context, address, name, group string) error {
	m, err := open(ctx, address)
	if err != nil {
		return err
	}
	defer m.close()
	pids := []uint32{uint32(os.Getpid())}
	err = m.start(name, scope("Bulkhead's engine and its pods", pids)...)
	if failed(err, exists) {
		return m.systemd.CallWithContext(m.ctx, manager+".AttachProcessesToUnit", 0, name, group, pids).Err
	}
	return err
}

// Lingers reports whether the manager of this user outlives the user's sessions.
func Lingers(user string) bool {
	_, err := os.Stat(filepath.Join("/var/lib/systemd/linger", filepath.Base(user)))
	return err == nil
}

// unified reports whether cgroup2 has all controllers.
func unified(mount string) bool {
	var fs unix.Statfs_t
	return unix.Statfs(mount, &fs) == nil && fs.Type == unix.CGROUP2_SUPER_MAGIC
}

// descend moves this process into the leaf of its group in cgroup2.
func descend(own, mount string) error {
	b, err := os.ReadFile(own)
	if err != nil {
		return err
	}
	_, group, _ := strings.Cut(strings.TrimSpace(string(b)), "0::")
	if filepath.Base(group) == leaf {
		return nil
	}
	dir := filepath.Join(mount, group, leaf)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
}
