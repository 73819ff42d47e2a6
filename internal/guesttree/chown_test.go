package guesttree

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestChownKeeps: an immutable file stays as it is, and all other files still get the group.
func TestChownKeeps(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	dir := t.TempDir()
	for _, name := range []string{"a", "kept", "z"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.Open(filepath.Join(dir, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	flags := func(flags int) error { return unix.IoctlSetPointerInt(int(kept.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	if err := flags(unix.STATX_ATTR_IMMUTABLE); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := flags(0); err != nil {
			t.Error(err)
		}
	}()
	const group = 4321
	if err := Chown(t.Context(), dir, group); !errors.Is(err, ErrKept) {
		t.Errorf("%v", err)
	}
	for name, want := range map[string]uint32{"a": group, "kept": uint32(os.Getegid()), "z": group, ".": group} {
		var st unix.Stat_t
		if err := unix.Stat(filepath.Join(dir, name), &st); err != nil || st.Gid != want {
			t.Errorf("%s is of group %d: %v", name, st.Gid, err)
		}
	}
}

// TestChownAt: the opened tree is changed, whatever has its name by then.
func TestChownAt(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files away")
	}
	in := t.TempDir()
	at, moved, other := filepath.Join(in, "at"), filepath.Join(in, "moved"), filepath.Join(in, "other")
	for _, dir := range []string{at, other} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "f"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	top, err := os.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	const group = 4321
	if err := errors.Join(os.Rename(at, moved), os.Symlink(other, at), ChownAt(t.Context(), top, group, false)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint32{moved: group, moved + "/f": group, other: 0, other + "/f": 0} {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil || st.Gid != want {
			t.Errorf("%s is of group %d: %v", path, st.Gid, err)
		}
	}
}
