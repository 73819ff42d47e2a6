// Package hostcgroup manages a pod's cgroup on the host, which limits the pod's shim and VM whatever they do.
//
// It uses cgroup2 and the older controllers, alone or side by side, through a few of their files. The common library
// (containerd/cgroups) would add eBPF, D-Bus, protobuf and a logger for that.
//
// The groups of one owner lie in one directory in each hierarchy, named by the owner's tag. For the older controllers
// it lies below this process's own group. For cgroup2 it lies beside it, since a group with processes cannot have
// groups with limits. So limits of the engine as a whole, as a service, apply to its pods too. Ordinary users have
// groups where their session was delegated a place.
package hostcgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits are a group's limits; zero means no limit.
type Limits struct {
	Memory int64 `json:"memory,omitempty"` // bytes, swap included where the kernel counts both
	// Quota is the microseconds of processor time in each Period; a Period of 0 means 100000.
	Quota  int64 `json:"quota,omitempty"`
	Period int64 `json:"period,omitempty"`
	PIDs   int64 `json:"pids,omitempty"` // processes and threads
	// Weight is the group's share of contended processors, in percent of an ordinary group's; 0 means 100.
	Weight int64 `json:"weight,omitempty"`
}

const defaultPeriod = 100_000

// The controllers that limits need.
var controllers = []string{"memory", "cpu", "pids"}

// accounting is the older controller that counts processor time. It limits nothing. If it has a hierarchy of its own, a
// pod's processes are in a group there, for readers of the surrounding groups' figures. cgroup2 counts without a
// controller.
const accounting = "cpuacct"

// keys are the keys of a Host's directories, in the order of Dirs. Keys that may share a directory are adjacent.
var keys = []string{"", "memory", "cpu", accounting, "pids"}

// Support describes the host's cgroups for pods.
type Support struct {
	Version     int      // 2, 1 (the older controllers), or 0 for none
	Controllers []string // the available ones of memory, cpu and pids
	// Missing is the reason if not all of it is available; else empty.
	Missing string
}

// Has reports whether a controller is available.
func (s Support) Has(controller string) bool { return slices.Contains(s.Controllers, controller) }

// Host is the place for an owner's groups. It is safe for concurrent use.
type Host struct {
	support Support
	tag     string
	// parents are the parents of the owner's directories: by controller for version 1, and by "" for version 2.
	parents map[string]string
	// mounts are the tops of the hierarchies, with the same keys.
	mounts map[string]string
}

// Find finds the place for the groups of an owner with that tag, which must be a unique file name. It never fails: if
// groups are not available, the host's Support has the reason. For cgroup2 it creates the owner's directory to find
// out; Tidy removes it.
func Find(tag string) *Host { return find(system, tag) }

// Support returns the host's support.
func (h *Host) Support() Support { return h.support }

// Dirs returns the directories of the group with that name, whether or not it exists. At turns them into a Group, also
// in another process. It returns none if groups are not available.
func (h *Host) Dirs(name string) []string {
	var dirs []string
	for _, key := range keys {
		if parent, ok := h.parents[key]; ok {
			dirs = append(dirs, filepath.Join(parent, h.tag, name))
		}
	}
	return slices.Compact(dirs) // controllers may share a hierarchy
}

// Create creates a group with limits. If the group exists, only its limits are set. After an error nothing is left. If
// groups are not available it returns nil, which is a Group that does nothing.
func (h *Host) Create(name string, l Limits) (_ *Group, err error) {
	if name == "" || name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, fmt.Errorf("create a cgroup: invalid name %q", name)
	}
	if h.support.Version == 0 {
		return nil, nil
	}
	g := At(h.Dirs(name))
	defer func() {
		if err != nil {
			g.remove()
		}
	}()
	for _, dir := range g.dirs {
		if err := h.mkdir(dir); err != nil {
			return nil, fmt.Errorf("create a cgroup: %w", err)
		}
	}
	if err := g.Set(l); err != nil {
		return nil, fmt.Errorf("create a cgroup: %w", err)
	}
	for _, dir := range g.dirs {
		weigh(filepath.Dir(dir))
	}
	return g, nil
}

// mkdir creates a group's directory, and its owner's, which Tidy may remove at any time.
func (h *Host) mkdir(dir string) error {
	for range 3 {
		err := os.Mkdir(dir, 0o755)
		if err == nil || errors.Is(err, fs.ErrExist) {
			return nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if h.support.Version == 2 {
			if _, err := prepare(filepath.Dir(filepath.Dir(dir)), h.tag); err != nil {
				return err
			}
		} else if err := os.Mkdir(filepath.Dir(dir), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return fmt.Errorf("%s: another process keeps removing it", filepath.Dir(dir))
}

// Names returns the existing groups of this owner, sorted.
func (h *Host) Names() ([]string, error) {
	var names []string
	for _, dir := range h.Dirs("") {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list the cgroups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Reap kills and removes the groups for which keep returns false, and then tidies.
func (h *Host) Reap(ctx context.Context, keep func(name string) bool) error {
	names, err := h.Names()
	errs := []error{err}
	for _, name := range names {
		if !keep(name) {
			errs = append(errs, At(h.Dirs(name)).KillAndDelete(ctx))
		}
	}
	h.Tidy()
	return errors.Join(errs...)
}

// Tidy removes the owner's directories if they have no groups.
func (h *Host) Tidy() {
	for _, dir := range h.Dirs("") {
		_ = os.Remove(dir) // the kernel refuses while there is a group
	}
}

// write writes to a group's existing file.
func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", value, err)
	}
	return nil
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
