package layout

import (
	"errors"
	"fmt"
	"os"
	"path"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// subPath finds the part of a volume that a kubelet has mounted at a path below
// volume-subpaths. The mount table tells it: what is mounted there is a directory or a
// file of the file system that the volume lies on.
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
			mounted = m // the last one covers those before
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

// errOther is of a part of a volume of another kind: a directory of the host.
var errOther = errors.New("no volume of a kind that the guest has")

// covering is the mount that a path lies in.
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

// published is the path by which a file is known whose files the kubelet has written:
// they lie in a directory of that version ("..2006_01_02"), which links lead to.
func published(rest string, files bool) string {
	version, key, ok := strings.Cut(rest, "/")
	if files && ok && strings.HasPrefix(version, "..") {
		return key
	}
	return rest
}
