package hostcgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// leaf is the group of processes below a client's group of cgroup2, which may have no processes beside other groups.
// The name is the one that podman knows.
const leaf = "container"

// ClientGroup returns the group of a client's container at a path: from the top of the hierarchies if it is absolute,
// or below this process's own group. Create makes it. It has no limits: the groups below it do.
func ClientGroup(path string) (*Group, error) {
	all, err := system.hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		h := all[key]
		if key == "" && len(all) > 1 { // beside the older controllers, cgroup2 has none
			continue
		}
		dir := filepath.Join(h.mount, filepath.Join("/", path))
		if !strings.HasPrefix(path, "/") {
			dir = filepath.Join(h.mount, h.own, filepath.Join("/", path))
		}
		if key == "" {
			dir = filepath.Join(dir, leaf)
		}
		if !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return At(dirs), nil
}

// Make makes the group's directories with their parents. They may exist.
func (g *Group) Make() error {
	if g == nil {
		return nil
	}
	for _, dir := range g.dirs {
		if err := makeAll(dir); err != nil {
			return fmt.Errorf("make the cgroup %s: %w", dir, err)
		}
	}
	return nil
}

// Take makes the group and moves a process into it, from the group above for example.
func (g *Group) Take(pid int) error {
	if err := g.Make(); err != nil {
		return err
	}
	for _, dir := range g.Dirs() {
		if err := write(dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("enter a cgroup: %w", err)
		}
		if filepath.Base(dir) != leaf {
			continue
		}
		if err := enable(filepath.Dir(dir)); err != nil { // it has no processes any more
			return err
		}
	}
	return nil
}

// makeAll makes a directory of a hierarchy with its parents. In cgroup2, groups below each parent get controllers.
func makeAll(dir string) error {
	err := os.Mkdir(dir, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeAll(filepath.Dir(dir)); err == nil {
			err = os.Mkdir(dir, 0o755)
		}
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if unified(dir) && filepath.Base(dir) != leaf {
		return enable(dir)
	}
	return inherit(dir)
}

// inherit gives a new group of the older controller cpuset the processors and the memory of its parent: without them it
// takes no process.
func inherit(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		own, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || strings.TrimSpace(string(own)) != "" || unified(dir) {
			continue // another controller, or not a new group
		}
		if err := inherit(filepath.Dir(dir)); err != nil { // another process may just have made it
			return err
		}
		parents, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if err != nil {
			return err
		}
		if err := write(dir, file, strings.TrimSpace(string(parents))); err != nil {
			return err
		}
	}
	return nil
}

// Dirs returns the group's directories.
func (g *Group) Dirs() []string {
	if g == nil {
		return nil
	}
	return g.dirs
}

// Unmake removes the group of a client's container, after its own last process has ended. It stays if other containers
// are in it.
func (g *Group) Unmake(ctx context.Context) error {
	for _, dir := range g.Dirs() {
		if used(dir) {
			continue
		}
		if err := remove(ctx, dir); err != nil {
			return fmt.Errorf("remove a cgroup: %w", err)
		}
		if parent := filepath.Dir(dir); filepath.Base(dir) == leaf && !used(parent) {
			if err := remove(ctx, parent); err != nil {
				return fmt.Errorf("remove a cgroup: %w", err)
			}
		}
	}
	return nil
}

// used reports whether a group has processes, or other groups in it.
func used(dir string) bool {
	pids, err := At([]string{dir}).PIDs()
	if err == nil && len(pids) > 0 {
		return true
	}
	entries, err := os.ReadDir(dir)
	return err == nil && slices.ContainsFunc(entries, fs.DirEntry.IsDir)
}
