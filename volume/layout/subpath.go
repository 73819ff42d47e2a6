package layout

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// subPath finds the part of a volume that a kubelet has mounted at a path below volume-subpaths. It uses the mount
// table: the mount is a directory or file on the volume's file system.
func subPath(volumesDir, name, at string) (Volume, error) {
	table, err := mountinfo.GetMounts(nil)
	if err != nil {
		return Volume{}, fmt.Errorf("find the mount at %s: %w", at, err)
	}
	return findSubPath(table, volumesDir, name, at)
}

func findSubPath(table []*mountinfo.Info, volumesDir, name, at string) (Volume, error) {
	var mounted *mountinfo.Info
	for _, m := range table {
		if m.Mountpoint == at {
			mounted = m // the last mount covers earlier ones
		}
	}
	if mounted == nil {
		return Volume{}, fmt.Errorf("%s: nothing is mounted there: %w", at, ErrUnknownSubPath)
	}
	other := true
	for kind, files := range kinds {
		dir := path.Join(volumesDir, kind, name)
		if _, err := os.Lstat(dir); err != nil {
			continue
		}
		other = false
		under := covering(table, dir)
		if under == nil || under.Major != mounted.Major || under.Minor != mounted.Minor {
			continue
		}
		inside := path.Join(under.Root, strings.TrimPrefix(dir, under.Mountpoint))
		rest, ok := strings.CutPrefix(mounted.Root, strings.TrimSuffix(inside, "/")+"/")
		if mounted.Root == inside {
			rest, ok = "", true
		}
		if ok {
			return Volume{Name: name, Dir: dir, SubPath: published(rest, files), Files: files}, nil
		}
	}
	if other {
		return Volume{}, errOther
	}
	return Volume{}, fmt.Errorf("%s: %w", at, ErrUnknownSubPath)
}

// errOther means that the volume is of another kind: a directory of the host.
var errOther = errors.New("no volume of a kind that the guest has")

// covering returns the mount that contains a path.
func covering(table []*mountinfo.Info, name string) *mountinfo.Info {
	var found *mountinfo.Info
	for _, m := range table {
		if m.Mountpoint != name && !strings.HasPrefix(name, strings.TrimSuffix(m.Mountpoint, "/")+"/") {
			continue
		}
		if found == nil || len(m.Mountpoint) >= len(found.Mountpoint) {
			found = m
		}
	}
	return found
}

// published returns the published path of a file. If the kubelet has written the volume's files, they are in a
// directory of their version ("..2006_01_02"), which links lead to.
func published(rest string, files bool) string {
	version, key, ok := strings.Cut(rest, "/")
	if files && ok && strings.HasPrefix(version, "..") {
		return key
	}
	return rest
}
