package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/volume/layout"
)

// kubeletDirs adds to a pod's options the emptyDirs of a kubelet that a container mounts, and their group. The CRI has
// no fields for their medium, size and permissions, so they come from the kubelet's directories on the host.
func kubeletDirs(dirs layout.Dirs, o *runtimev1.PodOptions, config *runtimeapi.ContainerConfig) error {
	o.EmptyDirs = maps.Clone(o.EmptyDirs)
	for _, mount := range config.GetMounts() {
		v, ok, err := dirs.Of(mount.GetHostPath())
		if err != nil || !ok || v.Files || v.Host || dirs.Kubelet == "" || !strings.HasPrefix(v.Dir, filepath.Clean(dirs.Kubelet)+"/") {
			continue // the specification reports faults of mounts
		}
		dir, group, err := kubeletDir(v)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
		if o.EmptyDirs == nil {
			o.EmptyDirs = map[string]containerv1.Dir{}
		}
		o.EmptyDirs[v.Name] = dir
		if group != 0 {
			o.FSGroup = group // the group of all of a pod's volumes
		}
	}
	return nil
}

// kubeletDir returns the emptyDir that a kubelet has made on the host, and the group of its files, 0 for none.
func kubeletDir(v layout.Volume) (d containerv1.Dir, group int, err error) {
	info, err := os.Lstat(v.Dir)
	if err != nil {
		return d, 0, err
	}
	parent, err := os.Lstat(filepath.Dir(v.Dir))
	if err != nil {
		return d, 0, err
	}
	own, around := info.Sys().(*syscall.Stat_t), parent.Sys().(*syscall.Stat_t)
	d = containerv1.Dir{Name: v.Name, Mode: own.Mode & 0o7777}
	if own.Mode&unix.S_ISGID != 0 {
		group = int(own.Gid)
	}
	if own.Dev == around.Dev {
		return d, group, nil
	}
	var system unix.Statfs_t
	if err := unix.Statfs(v.Dir, &system); err != nil {
		return d, 0, &fs.PathError{Op: "statfs", Path: v.Dir, Err: err}
	}
	switch {
	case system.Type == unix.TMPFS_MAGIC:
		d.Medium = containerv1.Memory
	case system.Type == unix.HUGETLBFS_MAGIC && system.Bsize == 2<<20:
		d.Medium = containerv1.HugePages
	default:
		return d, 0, fmt.Errorf("%w: an emptyDir on a file system of type %#x", oci.ErrNotSupported, system.Type)
	}
	d.Size = int64(system.Blocks) * system.Bsize
	return d, group, nil
}
