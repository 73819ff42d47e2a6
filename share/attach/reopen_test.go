package attach

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestOpenByPath: a file that has replaced the checked one at a path is not attached.
func TestOpenByPath(t *testing.T) {
	t.Parallel()
	link := func(dir string) error { return os.Symlink("other", filepath.Join(dir, "above")) }
	move := func(dir string) error { return os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "above")) }
	for name, c := range map[string]struct {
		swap func(dir string) error
		want error
	}{
		"a link above":         {link, unix.ELOOP},
		"another directory":    {move, unix.ESTALE},
		"nothing at all there": {func(string) error { return nil }, unix.ENOENT},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range []string{"above/it", "other/it"} {
				if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			tree := Tree{Path: filepath.Join(dir, "above", "it")}
			judged, err := os.Open(tree.Path)
			if err != nil {
				t.Fatal(err)
			}
			defer judged.Close()
			tree.FD = int(judged.Fd())
			if err := os.Rename(filepath.Join(dir, "above"), filepath.Join(dir, "was")); err != nil {
				t.Fatal(err)
			}
			if err := c.swap(dir); err != nil {
				t.Fatal(err)
			}
			if fd, err := tree.open(true); !errors.Is(err, c.want) {
				t.Errorf("%d, %v, want %v", fd, err, c.want)
			}
		})
	}
}
