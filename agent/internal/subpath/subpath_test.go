package subpath

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

// inode identifies the file of a descriptor.
func inode(t *testing.T, fd int) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino
}

func TestOpen(t *testing.T) {
	t.Parallel()
	volume, outside := t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(volume, name) }
	for _, err := range []error{
		os.Chmod(volume, 0o770|os.ModeSetgid), os.MkdirAll(at("in/deep"), 0o755), os.WriteFile(at("in/file"), nil, 0o644),
		os.Symlink("in", at("link")), os.Symlink("../in", at("in/back")), os.Symlink(outside, at("absolute")), os.Symlink("../../..", at("up")),
		os.Symlink("gone", at("dangling")), os.Symlink("loop", at("loop")), os.Symlink("/proc/self/cwd", at("magic")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		part, is string
		fails    bool
	}{
		{part: "in", is: "in"},
		{part: "in/file", is: "in/file"},
		{part: "in/deep", is: "in/deep"},
		{part: ".", is: "."},
		{part: "./in//deep/", is: "in/deep"},
		{part: "link/deep", is: "in/deep"},
		{part: "in/back/file", is: "in/file"},
		{part: "new/er", is: "new/er"},
		{part: "link/made", is: "in/made"},
		{part: "", fails: true},
		{part: "..", fails: true},
		{part: "in/../..", fails: true},
		{part: "/etc", fails: true},
		{part: "absolute", fails: true}, {part: "absolute/x", fails: true}, {part: "up", fails: true}, {part: "up/etc", fails: true},
		{part: "dangling", fails: true}, {part: "loop", fails: true}, {part: "magic", fails: true}, {part: "in/file/x", fails: true},
	} {
		fd, err := Open(volume, tc.part, true)
		if tc.fails {
			if err == nil {
				t.Errorf("%q is opened", tc.part)
				unix.Close(fd)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tc.part, err)
			continue
		}
		if inode(t, fd) != inodeOf(t, at(tc.is)) {
			t.Errorf("%q is not %s", tc.part, tc.is)
		}
		unix.Close(fd)
	}
	if info, err := os.Stat(at("new/er")); err != nil || info.Mode().Perm() != 0o770 || info.Mode()&os.ModeSetgid == 0 {
		t.Errorf("a directory that was made: %v, %v", info, err)
	}
	if _, err := Open(volume, "absolute", true); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("a link out: %v", err)
	}
	if _, err := Open(volume, "no/such", false); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing part that must not be created: %v", err)
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
		t.Errorf("made outside: %v, %v", left, err)
	}
}

// TestOpenIsNotRaced replaces parts of the path by links out of the volume as fast as possible: nothing outside is
// ever opened or created.
func TestOpenIsNotRaced(t *testing.T) {
	t.Parallel()
	volume, outside := t.TempDir(), t.TempDir()
	foreign := inodeOf(t, outside)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var racers sync.WaitGroup
	for _, name := range []string{"a", "a/b"} {
		racers.Go(func() {
			path := filepath.Join(volume, name)
			for i := 0; ctx.Err() == nil; i++ {
				_ = os.RemoveAll(path) // each of these may lose the race
				if i%2 == 0 {
					_ = os.Symlink(outside, path)
				} else {
					_ = os.Mkdir(path, 0o755)
				}
			}
		})
	}
	opened := 0
	for ctx.Err() == nil {
		fd, err := Open(volume, "a/b/c", true)
		if err != nil {
			continue
		}
		opened++
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil {
			t.Error(err)
		}
		if st.Ino == foreign {
			t.Error("opened outside the volume")
		}
		unix.Close(fd)
	}
	racers.Wait()
	if _, err := os.Lstat(filepath.Join(outside, "b", "c")); err == nil {
		t.Error("a directory was made outside the volume")
	}
	if _, err := os.Lstat(filepath.Join(outside, "c")); err == nil {
		t.Error("a directory was made outside the volume")
	}
	t.Logf("opened %d times", opened)
}
