package named

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// TestChown checks that Chown changes the group of all files in a volume, and follows no link.
func TestChown(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Log("not looked at: an ordinary user gives nothing away")
		return
	}
	s := In(t.TempDir())
	if _, err := s.Create(t.Context(), Volume{Name: "data", Kind: Shared}); err != nil {
		t.Fatal(err)
	}
	at := s.Files("data")
	outside := filepath.Join(t.TempDir(), "outside")
	err := errors.Join(os.WriteFile(outside, nil, 0o600), os.Mkdir(filepath.Join(at, "d"), 0o700), os.Chmod(at, 0o755),
		os.WriteFile(filepath.Join(at, "d/f"), nil, 0o400), os.Chown(filepath.Join(at, "d/f"), 7, 7),
		os.Symlink(outside, filepath.Join(at, "link")), os.Symlink("/etc", filepath.Join(at, "d/up")))
	if err != nil {
		t.Fatal(err)
	}
	look := func() (all []string) {
		for _, name := range []string{".", "d", "d/f", "link", "d/up"} {
			var st unix.Stat_t
			if err := unix.Lstat(filepath.Join(at, name), &st); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%s %d:%d %o", name, st.Uid, st.Gid, st.Mode&0o7777))
		}
		return all
	}
	want := []string{". 0:99 2775", "d 0:99 2770", "d/f 7:99 660", "link 0:99 777", "d/up 0:99 777"}
	for range 2 {
		if err := s.Chown(t.Context(), "data", 99); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, look()); diff != "" {
			t.Error(diff)
		}
	}
	// A file that cannot be changed does not prevent the use of the volume.
	kept, err := os.Open(filepath.Join(at, "d/f"))
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	flags := func(flags int) error { return unix.IoctlSetPointerInt(int(kept.Fd()), unix.FS_IOC_SETFLAGS, flags) }
	if err := errors.Join(flags(unix.STATX_ATTR_IMMUTABLE), s.Chown(t.Context(), "data", 98), flags(0)); err != nil {
		t.Error(err)
	}
	want = []string{". 0:98 2775", "d 0:98 2770", "d/f 7:99 660", "link 0:98 777", "d/up 0:98 777"}
	if diff := cmp.Diff(want, look()); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(outside)
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("file outside the volume: %v, %v", info, err)
	}
}
