package layout

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
)

// TestFindSubPath: a mount is a part of a volume if it has the volume's file system and is within the volume there.
func TestFindSubPath(t *testing.T) {
	volumes := filepath.Join(t.TempDir(), "volumes")
	for _, dir := range []string{filepath.Join(EmptyDir, "e"), filepath.Join(Secret, "s")} {
		if err := os.MkdirAll(filepath.Join(volumes, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const at = "/pod/volume-subpaths/0"
	empty, secret := filepath.Join(volumes, EmptyDir, "e"), filepath.Join(volumes, Secret, "s")
	type table []*mountinfo.Info
	disk := func(point, root string, major, minor int) *mountinfo.Info {
		return &mountinfo.Info{Mountpoint: point, Root: root, Major: major, Minor: minor}
	}
	root := disk("/", "/", 8, 1)
	for _, test := range []struct {
		what, name string
		table      table
		want       string // the part
		unknown    bool
	}{
		{what: "a part", name: "e", table: table{root, disk(at, empty+"/a", 8, 1)}, want: "a"},
		{what: "all", name: "e", table: table{root, disk(at, empty, 8, 1)}},
		{what: "another disk of the driver", name: "e", table: table{root, disk(at, empty+"/a", 8, 2)}, unknown: true},
		{what: "another driver's disk", name: "e", table: table{root, disk(at, empty+"/a", 9, 1)}, unknown: true},
		{what: "a volume without a mount above it", name: "e", table: table{disk(at, empty+"/a", 8, 1)}, unknown: true},
		{what: "a neighbour", name: "e", table: table{root, disk(at, empty+"x/a", 8, 1)}, unknown: true},
		{what: "another volume", name: "s", table: table{root, disk(at, empty+"/a", 8, 1)}, unknown: true},
		{what: "nothing", name: "e", table: table{root}, unknown: true},
		{
			what: "the last of two mounts there", name: "e",
			table: table{root, disk(at, "/etc", 8, 1), disk(at, empty+"/b", 8, 1)}, want: "b",
		},
		{
			what: "a disk of its own below another", name: "e",
			table: table{root, disk(volumes, "/vols", 8, 2), disk(at, "/vols/"+EmptyDir+"/e/a", 8, 2)}, want: "a",
		},
		{
			what: "the last of two disks of the volume", name: "e",
			table: table{root, disk(empty, "/old", 8, 2), disk(empty, "/new", 8, 3), disk(at, "/new/a", 8, 3)}, want: "a",
		},
		{
			what: "the first of two disks of the volume", name: "e",
			table: table{root, disk(empty, "/old", 8, 2), disk(empty, "/new", 8, 3), disk(at, "/old/a", 8, 2)}, unknown: true,
		},
		{what: "a version of files", name: "s", table: table{root, disk(at, secret+"/..2026/key", 8, 1)}, want: "key"},
		{what: "a directory of files", name: "s", table: table{root, disk(at, secret+"/dir/key", 8, 1)}, want: "dir/key"},
		{what: "a version itself", name: "s", table: table{root, disk(at, secret+"/..2026", 8, 1)}, want: "..2026"},
		{what: "a program's own directory", name: "e", table: table{root, disk(at, empty+"/..mine/key", 8, 1)}, want: "..mine/key"},
	} {
		got, err := findSubPath(test.table, volumes, test.name, at)
		if test.unknown {
			if !errors.Is(err, ErrUnknownSubPath) {
				t.Errorf("%s: %+v, %v", test.what, got, err)
			}
			continue
		}
		if err != nil || got.SubPath != test.want || got.Name != test.name {
			t.Errorf("%s: %+v, %v, want %q", test.what, got, err, test.want)
		}
	}
}
