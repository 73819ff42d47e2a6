package payload

import (
	"archive/tar"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTools checks that the files of Tools are enough to run git: it unpacks them and runs git with their own loader
// and libraries only.
func TestTools(t *testing.T) {
	t.Parallel()
	all, err := Tools(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	for _, e := range all {
		at := filepath.Join(root, e.Name)
		switch e.Typeflag {
		case tar.TypeDir:
			err = os.Mkdir(at, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(e.Linkname, at)
		default:
			err = os.WriteFile(at, e.Body, os.FileMode(e.Mode))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	lib := filepath.Join(root, "lib/x86_64-linux-gnu")
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, "lib64/ld-linux-x86-64.so.2"), "--library-path", lib, "--inhibit-cache",
		filepath.Join(root, "usr/bin/git"), "--version")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("git --version: got error %v, want success; output:\n%s", err, out)
	}
}
