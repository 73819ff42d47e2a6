package fsys_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/fsystest"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

// owner returns a file's owner on both sides.
func owner(t *testing.T, path string) string {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return outcome(err)
	}
	return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
}

// TestOwners: files belong to the user in the guest who creates them, or to the group of a set-group-id directory.
func TestOwners(t *testing.T) {
	t.Parallel()
	mounted, host := share(t, fsys.Options{}, fsys.Root{})
	for _, dir := range []string{"plain", "group"} {
		if err := os.Mkdir(filepath.Join(host, dir), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Chown(filepath.Join(host, "group"), 0, 2000); err != nil {
		t.Fatal(err)
	}
	for dir, mode := range map[string]uint32{"plain": 0o777, "group": 0o2777} {
		if err := unix.Chmod(filepath.Join(host, dir), mode); err != nil {
			t.Fatal(err)
		}
	}
	for dir, want := range map[string]string{"plain": "1000:1001", "group": "1000:2000"} {
		for what, do := range map[string]func(path string) error{
			"file": func(path string) error {
				fd, err := unix.Open(path, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
				_ = unix.Close(fd)
				return err
			},
			"dir":  func(path string) error { return unix.Mkdir(path, 0o700) },
			"fifo": func(path string) error { return unix.Mknod(path, unix.S_IFIFO|0o600, 0) },
			"link": func(path string) error { return unix.Symlink("nowhere", path) },
		} {
			path := filepath.Join(mounted, dir, what)
			as(1000, 1001, func() string {
				if err := do(path); err != nil {
					t.Errorf("%s in %s: %v", what, dir, err)
				}
				return ""
			})
			if got := owner(t, filepath.Join(host, dir, what)); got != want {
				t.Errorf("%s in %s belongs to %s on the host", what, dir, got)
			}
			if got := owner(t, path); got != want {
				t.Errorf("%s in %s belongs to %s in the guest", what, dir, got)
			}
		}
	}
	// The directory is not the user's, and a guest's root may change anything.
	if err := unix.Chown(filepath.Join(mounted, "plain/file"), 7, 8); err != nil {
		t.Error(err)
	}
	if got := owner(t, filepath.Join(host, "plain/file")); got != "7:8" {
		t.Errorf("changed to %s", got)
	}
}

// TestRootless: an ordinary user serves. The user's files belong to the guest's root, other files to the user nobody.
func TestRootless(t *testing.T) {
	t.Parallel()
	base, err := os.MkdirTemp("", "rootless")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	if err := os.Chmod(base, 0o755); err != nil {
		t.Fatal(err)
	}
	host := filepath.Join(base, "shared")
	if err := os.Mkdir(host, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, uid := range map[string]int{".": 1234, "mine": 1234, "theirs": 4242} {
		if name != "." {
			if err := os.WriteFile(filepath.Join(host, name), []byte("data"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chown(filepath.Join(host, name), uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	top := fsystest.Mount(t, fsystest.Spec{
		Options: fsys.Options{Owner: &fsys.Owner{}},
		As:      &syscall.Credential{Uid: 1234, Gid: 1234},
		Roots:   []fsystest.Root{{Root: fsys.Root{Name: "data"}, Path: host}},
	})
	mounted := filepath.Join(top, "data")
	if err := os.WriteFile(filepath.Join(mounted, "new"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, guest, host string }{
		{"mine", "0:0", "1234:1234"}, {"theirs", "65534:65534", "4242:4242"}, {"new", "0:0", "1234:1234"}, {".", "0:0", "1234:1234"},
	} {
		if got := owner(t, filepath.Join(mounted, c.name)); got != c.guest {
			t.Errorf("%s belongs to %s in the guest", c.name, got)
		}
		if got := owner(t, filepath.Join(host, c.name)); got != c.host {
			t.Errorf("%s belongs to %s on the host", c.name, got)
		}
	}
	for _, c := range []struct {
		name     string
		uid, gid int
		want     error
	}{
		{"mine", 0, 0, nil}, {"mine", 0, -1, nil}, {"new", -1, 0, nil}, {"mine", 1, 0, unix.EPERM}, {"mine", 0, 1, unix.EPERM},
		{"mine", 1234, 1234, unix.EPERM}, {"theirs", 0, 0, unix.EPERM}, {"theirs", 65534, 65534, unix.EPERM}, {"theirs", 4242, -1, unix.EPERM},
	} {
		if err := unix.Chown(filepath.Join(mounted, c.name), c.uid, c.gid); outcome(err) != outcome(c.want) {
			t.Errorf("chown of %s to %d:%d: %v", c.name, c.uid, c.gid, err)
		}
	}
	if err := os.Chmod(filepath.Join(mounted, "theirs"), 0o777); err == nil {
		t.Error("the guest's root has changed another's file")
	}
	if err := os.WriteFile(filepath.Join(mounted, "theirs"), nil, 0); err == nil {
		t.Error("the guest's root has written another's file")
	}
	if err := os.Chmod(filepath.Join(mounted, "mine"), 0o600); err != nil {
		t.Error(err)
	}
}
