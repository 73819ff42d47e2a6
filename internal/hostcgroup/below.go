package hostcgroup

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Below is the place for the owner's groups inside a group that another has made, such as a
// kubelet's of a pod, named from the top of the hierarchies. A name that ends with ".slice"
// is systemd's. It fails where that group is missing from a hierarchy that h uses, and
// where it may hold less than so many bytes of memory.
func (h *Host) Below(parent string, memory int64) (*Host, error) {
	path := slicePath(filepath.Join("/", parent))
	below := &Host{support: h.support, tag: h.tag, mounts: h.mounts, parents: map[string]string{}}
	for key := range h.parents {
		dir := filepath.Join(h.mounts[key], path)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("cgroup %s is not there: %s", parent, dir)
		}
		if most := memoryOf(dir); most > 0 && most < memory {
			return nil, fmt.Errorf("cgroup %s may hold %d MiB of memory, and the VM takes up to %d: declare the overhead in a RuntimeClass",
				parent, most>>20, memory>>20)
		}
		below.parents[key] = dir
	}
	return below, nil
}

// Tops are where the hierarchies that h uses begin, from which groups are named.
func (h *Host) Tops() []string { return slices.Compact(slices.Sorted(maps.Values(h.mounts))) }

// Systemd tells whether systemd has made this host's groups.
func Systemd() bool {
	info, err := os.Stat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// slicePath is where systemd has a slice: "a-b.slice" is in "a.slice".
func slicePath(path string) string {
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

// memoryOf is a group's limit of memory in bytes; 0 is none, or none that can be read.
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
