package deploy

import (
	"cmp"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRPM: the .rpm has the files of the .deb. rpm verifies them and removes all of them. The test does not run the
// scripts of the package, which the .deb shares.
func TestRPM(t *testing.T) {
	if testing.Short() {
		t.Skip("needs the packages, which make test makes; it runs in the second pass")
	}
	if os.Getuid() != 0 {
		t.Skip("rpm enters the tree: needs root")
	}
	t.Parallel()
	root := t.TempDir()
	rpm := func(args ...string) string {
		t.Helper()
		return in(t, ".", "rpm", append([]string{"--root", root, "--dbpath", "/var/lib/rpm"}, args...)...)
	}
	rpm("--initdb")
	rpm("-i", "--nodeps", "--noscripts", built(t, ".x86_64.rpm"))
	var want []string
	for line := range strings.Lines(in(t, ".", "dpkg-deb", "-c", built(t, "_amd64.deb"))) {
		if f := strings.Fields(line); f[0][0] != 'd' {
			want = append(want, strings.TrimPrefix(f[5], "."))
		}
	}
	slices.Sort(want)
	if got := installed(t, root); !slices.Equal(got, want) {
		t.Errorf("installed are %q, want %q", got, want)
	}
	rpm("-V", "--nodeps", "bulkhead")
	if requires := rpm("-q", "--requires", "bulkhead"); !strings.Contains(requires, "qemu-system-x86-core\npasst") {
		t.Errorf("it requires %q", requires)
	}
	rpm("-e", "--nodeps", "--noscripts", "bulkhead")
	if left := installed(t, root); len(left) > 0 {
		t.Errorf("left are %q", left)
	}
	if _, err := os.Stat(filepath.Join(root, "usr/libexec/bulkhead")); err == nil {
		t.Error("the directory of the programs is left")
	}
}

// installed lists the files of a tree without rpm's own.
func installed(t *testing.T, root string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == "rpm" {
			return cmp.Or(err, fs.SkipDir)
		}
		if !d.IsDir() {
			files = append(files, strings.TrimPrefix(path, root))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}
