package rootfs

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]options{
		"":                           {},
		"ro,nosuid,nodev":            {flags: unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NODEV},
		"ro,rw":                      {},
		"rbind,ro":                   {flags: unix.MS_BIND | unix.MS_REC | unix.MS_RDONLY},
		"nosuid,suid,dev,exec,atime": {},
		"loop,ro":                    {flags: unix.MS_RDONLY, loop: true},
		"index=off,lowerdir=/a:/b":   {data: []string{"index=off", "lowerdir=/a:/b"}},
		"defaults,size=1m":           {data: []string{"size=1m"}},
	} {
		var list []string
		if text != "" {
			list = strings.Split(text, ",")
		}
		got, err := parse(list)
		if err != nil || got.flags != want.flags || got.loop != want.loop || !slices.Equal(got.data, want.data) {
			t.Errorf("parse(%q): got %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"uidmap=0:1:1", "gidmap=0:1:1", "X-containerd.loop", "a\x00b"} {
		if got, err := parse([]string{bad}); err == nil {
			t.Errorf("parse(%q): got %+v, want an error", bad, got)
		}
	}
	if _, err := parse([]string{"uidmap=0:1:1"}); !errors.Is(err, errIDMap) {
		t.Errorf("got %v, want %v", err, errIDMap)
	}
}

// TestCompact: only options that are too long are shortened, and mean the same.
func TestCompact(t *testing.T) {
	var lowers []string
	for i := range 100 {
		lowers = append(lowers, fmt.Sprintf("/var/lib/c/snapshots/%d/fs", i))
	}
	long := []string{"upperdir=/var/lib/c/snapshots/101/fs", lowerdir + strings.Join(lowers, ":"), "index=off"}
	dir, short := compact(long, 1000)
	if dir != "/var/lib/c/snapshots" || !strings.HasPrefix(short[1], "lowerdir=0/fs:1/fs:") || short[0] != long[0] || short[2] != long[2] {
		t.Errorf("got %q, %.60q", dir, short)
	}
	if strings.Contains(long[1], "=0/fs") {
		t.Error("the caller's options were changed")
	}
	for name, data := range map[string][]string{
		"short":            {lowerdir + "/a/b:/a/c"},
		"nothing common":   {lowerdir + "/a/b:/" + strings.Repeat("c", 2000)},
		"no overlay":       {strings.Repeat("x", 2000)},
		"a path's prefix":  {lowerdir + "/ab/c:/a/" + strings.Repeat("c", 2000)},
		"relative already": {lowerdir + "a/b:c/" + strings.Repeat("c", 2000)},
	} {
		if dir, short := compact(data, 1000); dir != "" || !slices.Equal(short, data) {
			t.Errorf("%s: got %q, %.60q", name, dir, short)
		}
	}
}
