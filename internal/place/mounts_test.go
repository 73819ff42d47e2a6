package place

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMount: if the file system of a place is unmounted, the directory below is not that place. If it is mounted again,
// the place is valid.
func TestMount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts")
	}
	at := filepath.Join(t.TempDir(), "a b")
	if err := os.MkdirAll(filepath.Join(at, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	mounted := func() {
		t.Helper()
		if err := unix.Mount("tmpfs", at, "tmpfs", 0, "size=1M"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
		if err := os.Mkdir(filepath.Join(at, "sub"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mounted()
	where := map[string]string{} // mount points by path
	for _, path := range []string{at, filepath.Join(at, "sub")} {
		p, err := Rules{}.Open(t.Context(), path, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		if where[path] = p.Mount; p.Mount != at {
			t.Errorf("%s is of %q", path, p.Mount)
		}
	}
	again := func(want error) {
		t.Helper()
		for path, mount := range where {
			p, err := Rules{}.Open(t.Context(), path, OpenOptions{Exact: true, Mount: mount})
			if err == nil {
				p.Close()
			}
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
		}
	}
	again(nil)
	if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	again(ErrBare)
	mounted()
	again(nil)
}
