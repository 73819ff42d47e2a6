package hostcgroup

import (
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

// ErrTooSmall is matched by Below's error for a group with a memory limit below the VM's size.
var ErrTooSmall = errors.New("cgroup is too small for the VM")

// Below returns the Host for the owner's groups inside another owner's group, such as a kubelet's of a pod. parent is a
// path from the top of the hierarchies. A name that ends with ".slice" is systemd's. If the group is missing from a
// hierarchy that h uses, it is created and stays, as with runc; but only systemd creates slices. If its memory limit is
// below memory, in bytes, the error is ErrTooSmall.
func (h *Host) Below(parent string, memory int64) (*Host, error) {
	path := SlicePath(filepath.Join("/", parent))
	below := &Host{support: h.support, tag: h.tag, mounts: h.mounts, parents: map[string]string{}}
	for key := range h.parents {
		dir := filepath.Join(h.mounts[key], path)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			if err := h.makeOther(h.mounts[key], path); err != nil {
				return nil, fmt.Errorf("create the cgroup %s: %w", parent, err)
			}
		}
		if most := memoryOf(dir); most > 0 && most < memory {
			return nil, fmt.Errorf("%w: %s may hold %d MiB of memory, and the VM takes up to %d: declare the overhead in a RuntimeClass",
				ErrTooSmall, parent, most>>20, memory>>20)
		}
		below.parents[key] = dir
	}
	return below, nil
}

// makeOther creates another owner's group in a hierarchy, with its parents.
func (h *Host) makeOther(mount, path string) error {
	if strings.HasSuffix(path, ".slice") && Systemd() {
		return fmt.Errorf("no such cgroup: %s: start the slice (systemctl start %s)", filepath.Join(mount, path), filepath.Base(path))
	}
	dir := mount
	for name := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		if h.support.Version == 2 {
			if err := enable(dir); err != nil {
				return err
			}
		}
		dir = filepath.Join(dir, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// Tops returns the tops of the hierarchies that h uses. Groups' names start there.
func (h *Host) Tops() []string { return slices.Compact(slices.Sorted(maps.Values(h.mounts))) }

// Systemd reports whether systemd manages this host's groups.
func Systemd() bool {
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// SlicePath returns systemd's path of a slice: "a-b.slice" is in "a.slice". Other paths stay as they are.
func SlicePath(path string) string {
	name, ok := strings.CutSuffix(filepath.Base(path), ".slice")
	if !ok {
		return path
	}
	dir, sofar := "/", ""
	for part := range strings.SplitSeq(name, "-") {
		sofar += part
		dir = filepath.Join(dir, sofar+".slice")
		sofar += "-"
	}
	return dir
}

// memoryOf returns a group's memory limit in bytes; 0 if there is none or it cannot be read.
func memoryOf(dir string) int64 {
	for _, file := range []string{"memory.max", "memory.limit_in_bytes"} {
		data, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil {
			return n
		}
	}
	return 0
}
