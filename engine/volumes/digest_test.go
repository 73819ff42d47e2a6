package volumes

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

func TestDigestTellsSetsApart(t *testing.T) {
	base := func() []atomicdir.File {
		return []atomicdir.File{{Path: "a", Mode: 0o600, Data: []byte("x")}, {Path: "b", Mode: 0o600, Data: []byte("y")}}
	}
	seen := map[string]string{digestOf(base(), 0): "base"}
	for name, change := range map[string]func([]atomicdir.File) []atomicdir.File{
		"data": func(s []atomicdir.File) []atomicdir.File { s[0].Data = []byte("z"); return s },
		"mode": func(s []atomicdir.File) []atomicdir.File { s[0].Mode = 0o640; return s },
		"uid":  func(s []atomicdir.File) []atomicdir.File { s[0].UID = 1; return s },
		"gid":  func(s []atomicdir.File) []atomicdir.File { s[0].GID = 1; return s },
		"path": func(s []atomicdir.File) []atomicdir.File { s[0].Path = "c"; return s },
		"less": func(s []atomicdir.File) []atomicdir.File { return s[:1] },
		"none": func([]atomicdir.File) []atomicdir.File { return nil },
		"moved": func(s []atomicdir.File) []atomicdir.File {
			s[0].Data, s[1].Data = []byte("xb"), nil
			return s
		},
	} {
		digest := digestOf(change(base()), 0)
		if other, twice := seen[digest]; twice {
			t.Errorf("%s is as %s", name, other)
		}
		seen[digest] = name
	}
	swapped := base()
	swapped[0], swapped[1] = swapped[1], swapped[0]
	if digestOf(swapped, 0) != digestOf(base(), 0) || digestOf(base(), 1) == digestOf(base(), 0) {
		t.Error("the order counts, or the group does not")
	}
}
