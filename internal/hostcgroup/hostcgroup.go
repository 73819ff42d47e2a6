// Package hostcgroup is a pod's cgroup on the host: the wall around the pod's
// shim and machine that stands whatever either of them does.
//
// It drives cgroup2 and the older controllers, by themselves or side by side,
// through their files. It is a few of them, written and read: the field's library
// (containerd/cgroups) would bring eBPF, D-Bus, protobuf and a logger for that.
//
// Groups of one owner lie in one directory in each hierarchy, named by the
// owner's tag: for the older controllers below this process's own group, for cgroup2
// beside it, as there a group with processes has no groups with limits below.
// So what limits the engine as a whole, as a service, goes on to limit its pods. A
// user who is not root has groups where its session was delegated the place.
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

// Limits are what a group may use; zero is no limit.
type Limits struct {
	Memory int64 `json:"memory,omitempty"` // bytes, swap included where the kernel counts both
	// Quota is the microseconds of processor time in each Period; a Period of 0
	// is 100000.
	Quota  int64 `json:"quota,omitempty"`
	Period int64 `json:"period,omitempty"`
	PIDs   int64 `json:"pids,omitempty"` // processes and threads
	// Weight is the group's share of processors that others want too, in percent
	// of an ordinary group's; 0 is 100.
	Weight int64 `json:"weight,omitempty"`
}

const defaultPeriod = 100_000

// The controllers that limits need.
var controllers = []string{"memory", "cpu", "pids"}

// accounting is the older controller that counts the processors' time. It limits nothing:
// where it has a hierarchy of its own, a pod's processes are in a group there for who reads
// the figures of the groups around it. cgroup2 counts without one.
const accounting = "cpuacct"

// keys are of a Host's directories, in the order in which Dirs has them: those that may be
// one are beside each other.
var keys = []string{"", "memory", "cpu", accounting, "pids"}

// Support is what there is of cgroups for pods.
type Support struct {
	Version     int      // 2, 1 (the older controllers), or 0: there is none
	Controllers []string // of memory, cpu and pids, those that can be had
	// Missing says why there is not all of it; empty when there is.
	Missing string
}

// Has tells whether a controller is there.
func (s Support) Has(controller string) bool { return slices.Contains(s.Controllers, controller) }

// Host is the place where an owner's groups are made. Its methods may be
// called at once.
type Host struct {
	support Support
	tag     string
	// parents are the directories that the owner's is made in: by controller
	// for version 1, and one of the name "" for version 2.
	parents map[string]string
	// mounts are the tops of the hierarchies of the same keys.
	mounts map[string]string
}

// Find looks for the place for the groups of an owner, whose tag is a file's
// name of its own. It never fails: where groups cannot be had, the host's Support says
// why. For cgroup2 it makes the owner's directory, as only that tells; Tidy
// removes it.
func Find(tag string) *Host { return find(system, tag) }

// Support tells what the host has.
func (h *Host) Support() Support { return h.support }

// Dirs are the directories of the group of that name, whether or not it is there:
// what At makes a Group of again, in another process. There are none where
// groups cannot be had.
func (h *Host) Dirs(name string) []string {
	var dirs []string
	for _, key := range keys {
		if parent, ok := h.parents[key]; ok {
			dirs = append(dirs, filepath.Join(parent, h.tag, name))
		}
	}
	return slices.Compact(dirs) // controllers may share a hierarchy
}

// Create makes a group with limits. One that is there is taken and limited. If it
// fails nothing is left. Where groups cannot be had it returns nil, which is a
// Group that does nothing.
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

// mkdir makes a group's directory, and its owner's, which Tidy may remove at any
// time.
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

// Names are the groups that there are of this owner's, sorted.
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

// Reap kills and removes the groups that keep does not want, and then tidies.
func (h *Host) Reap(ctx context.Context, keep func(name string) bool) error {
	names, err := h.Names()
	errs := []error{err}
	for _, name := range names {
		if !keep(name) {
			errs = append(errs, At(h.Dirs(name)).End(ctx))
		}
	}
	h.Tidy()
	return errors.Join(errs...)
}

// Tidy removes the owner's directories if no group is left in them.
func (h *Host) Tidy() {
	for _, dir := range h.Dirs("") {
		_ = os.Remove(dir) // the kernel refuses while there is a group
	}
}

// write writes to a group's file, which is there or is not to be made.
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
