package staging

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSheltered(t *testing.T) {
	top, err := os.MkdirTemp("/var/tmp", "shelter") // its parents are open to all users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(top) })
	root := filepath.Join(top, "storage", "root")
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(root, link); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		mode os.FileMode
		path string
		want bool
	}{
		{0o700, root, true},
		{0o710, root, true},
		{0o755, root, false},
		{0o711, root, false},
		{0o755, link, false}, // the link's own place does not count
		{0o755, filepath.Join(root, "absent"), false},
	} {
		if err := os.Chmod(top, test.mode); err != nil {
			t.Fatal(err)
		}
		if got := Sheltered(test.path); got != test.want {
			t.Errorf("mode %o, %s: got %v", test.mode, test.path, got)
		}
	}
}
