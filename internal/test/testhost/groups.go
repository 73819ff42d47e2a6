package testhost

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

const (
	// groupName is the variable with the name of the host's cgroup.
	groupName = "BULKHEAD_TEST_HOST_GROUP"
	// leaf is the group of the tests within the host's.
	leaf = "tests"
)

// hierarchies returns the mounted hierarchies of cgroups, each once.
func hierarchies() ([]*mountinfo.Info, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return nil, fmt.Errorf("list the hierarchies of cgroups: %w", err)
	}
	var out []*mountinfo.Info
	for _, m := range mounts {
		same := func(o *mountinfo.Info) bool { return o.Major == m.Major && o.Minor == m.Minor }
		if !slices.ContainsFunc(out, same) {
			out = append(out, m)
		}
	}
	return out, nil
}

// createGroups creates a group in every hierarchy.
func createGroups(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, m := range all {
		for _, dir := range []string{filepath.Join(m.Mountpoint, name), filepath.Join(m.Mountpoint, name, leaf)} {
			if err := os.Mkdir(dir, 0o755); err != nil {
				return fmt.Errorf("create the host's cgroup: %w", err)
			}
			if err := inherit(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// inherit gives a new group the processors and memory nodes of its parent. A group of version 1 starts without.
func inherit(dir string) error {
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file))
		if errors.Is(err, fs.ErrNotExist) || err == nil && strings.TrimSpace(string(value)) == "" {
			continue
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), value, 0o600)
		}
		if err != nil {
			return fmt.Errorf("set up the host's cgroup: %w", err)
		}
	}
	return nil
}

// joinGroups moves this process into a group's child of every hierarchy.
func joinGroups(name, child string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := os.WriteFile(filepath.Join(m.Mountpoint, name, child, "cgroup.procs"), []byte("0"), 0o600); err != nil {
			return fmt.Errorf("join the host's cgroup: %w", err)
		}
	}
	return nil
}

// removeGroups removes the host's groups with those in them. Their processes have ended.
func removeGroups(name string) error {
	all, err := hierarchies()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var errs []error
	for _, m := range all {
		groups := Groups(filepath.Join(m.Mountpoint, name))
		for _, dir := range slices.Backward(groups) {
			errs = append(errs, removeGroup(ctx, dir))
		}
	}
	return errors.Join(errs...)
}

// Groups returns the directory of a group and the directories of all groups in it, parents first.
func Groups(top string) (dirs []string) {
	_ = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return nil // another group may end meanwhile
	})
	return dirs
}

// removeGroup removes one group. The kernel may need a moment after the end of its last process.
func removeGroup(ctx context.Context, dir string) error {
	for {
		err := unix.Rmdir(dir)
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("remove the cgroup %s: %w", dir, err)
		}
	}
}
