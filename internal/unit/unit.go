// Package unit starts a systemd unit for the caller: a scope with a delegated cgroup. Limits of groups in it work, and
// its processes do not end with the session that has started it.
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
)

// callTimeout bounds the start of a unit.
const callTimeout = 10 * time.Second

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
	address := "unix:path=/run/dbus/system_bus_socket"
	if uid := os.Geteuid(); uid != 0 {
		address = "unix:path=/run/user/" + strconv.Itoa(uid) + "/bus"
	}
	for _, dir := range []string{"/run/systemd/system", strings.TrimPrefix(address, "unix:path=")} {
		if _, err := os.Stat(dir); err != nil {
			return fmt.Errorf("%w: %w", ErrNone, err)
		}
	}
	group := ""
	if unified(mount) {
		group = "/" + leaf
	}
	if err := startScope(ctx, address, name, group); err != nil {
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

// Lingers reports whether the manager of this user outlives the user's sessions.
func Lingers(user string) bool {
	_, err := os.Stat(filepath.Join("/var/lib/systemd/linger", filepath.Base(user)))
	return err == nil
}

// property is a unit's property on the bus.
type property struct {
	Name  string
	Value dbus.Variant
}

// auxiliary is a further unit of a job; none is used.
type auxiliary struct {
	Name       string
	Properties []property
}

// startScope starts the scope with this process. If the scope exists, startScope moves the process into the given group of
// it, "/own" for example, which must exist. The empty string is the scope's own group.
func startScope(ctx context.Context, address, name, group string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("connect to D-Bus: %w", err)
	}
	defer conn.Close()
	// The job may end before the answer to the call.
	ended := make(chan *dbus.Signal, 64)
	conn.Signal(ended)
	if err := conn.AddMatchSignalContext(ctx, dbus.WithMatchInterface(manager), dbus.WithMatchMember("JobRemoved")); err != nil {
		return err
	}
	systemd := conn.Object(service, path)
	if err := systemd.CallWithContext(ctx, manager+".Subscribe", 0).Err; err != nil {
		return err
	}
	pids := []uint32{uint32(os.Getpid())}
	var job dbus.ObjectPath
	err = systemd.CallWithContext(ctx, manager+".StartTransientUnit", 0, name, "fail", []property{
		{"Description", dbus.MakeVariant("Bulkhead's engine and its pods")},
		{"Delegate", dbus.MakeVariant(true)},
		{"PIDs", dbus.MakeVariant(pids)},
		{"CollectMode", dbus.MakeVariant("inactive-or-failed")},
	}, []auxiliary{}).Store(&job)
	var refusal dbus.Error
	if errors.As(err, &refusal) && refusal.Name == exists {
		return systemd.CallWithContext(ctx, manager+".AttachProcessesToUnit", 0, name, group, pids).Err
	}
	if err != nil {
		return err
	}
	for {
		select {
		case s, ok := <-ended:
			if !ok {
				return errors.New("the bus has ended")
			}
			if result, ok := resultOf(s, job); ok && result != "done" {
				return fmt.Errorf("its start ended as %s", result)
			} else if ok {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// resultOf returns the result of a job from the signal of its end.
func resultOf(s *dbus.Signal, job dbus.ObjectPath) (string, bool) {
	if len(s.Body) < 4 || s.Body[1] != job {
		return "", false
	}
	result, ok := s.Body[3].(string)
	return result, ok
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
