package testkube

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// newCgroup creates a group in every hierarchy and returns its name. It is removed with its groups when the test ends.
func newCgroup(t testing.TB, name string) string {
	t.Helper()
	mounts, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mounts {
		dir := filepath.Join(m.Mountpoint, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) { // one hierarchy may be mounted twice
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := removeTree(dir); err != nil {
				t.Errorf("remove the kubelet's cgroup: %v", err)
			}
		})
		// A group of version 1 starts without processors.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			value, err := os.ReadFile(filepath.Join(m.Mountpoint, file))
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, file), value, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	return name
}

// removeTree removes a group and those in it, which must have no processes.
func removeTree(dir string) error {
	var dirs []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			dirs = append(dirs, path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, dir := range slices.Backward(dirs) {
		err = errors.Join(err, os.Remove(dir))
	}
	return err
}

// KillPods kills all processes of pods, like a crash of the node.
func (c *Cluster) KillPods(ctx context.Context) error {
	for {
		left := 0
		err := filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil // a group that has ended
			case err != nil || e.Name() != "cgroup.procs" || !strings.Contains(path, "/"+c.cgroup+"/"):
				return err
			}
			pids, err := os.ReadFile(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENODEV) {
				return err
			}
			for word := range strings.FieldsSeq(string(pids)) {
				if pid, err := strconv.Atoi(word); err == nil {
					_ = unix.Kill(pid, unix.SIGKILL)
					left++
				}
			}
			return nil
		})
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond): // there is no event for it
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
