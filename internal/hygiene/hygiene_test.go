// Package hygiene holds what is true of the tree as a whole.
package hygiene

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	// maxFiles is of files in a package, tests and generated ones left out: one that has
	// more holds more than one thing.
	maxFiles = 22
	// maxLine is of characters in a line of Go, tests included.
	maxLine = 140
)

// TestTree looks at every Go file that is not generated.
func TestTree(t *testing.T) {
	top, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	root := strings.TrimSpace(string(top))
	files := map[string]int{}
	err = filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && (strings.HasPrefix(e.Name(), ".") && path != root || name == "bin" || name == "build"):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go"), strings.HasSuffix(path, ".pb.go"), strings.HasSuffix(path, "_ttrpc.go"):
			return nil
		}
		if !strings.HasSuffix(path, "_test.go") {
			files[filepath.Dir(name)]++
		}
		return longLines(t, path, name)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 50 {
		t.Fatalf("only %d packages were found in %s", len(files), root)
	}
	for dir, n := range files {
		if n > maxFiles {
			t.Errorf("package %s has %d files, and may have %d", dir, n, maxFiles)
		}
	}
}

// longLines reports each line of the file that is longer than maxLine.
func longLines(t *testing.T, path, name string) error {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		if got := utf8.RuneCount(lines.Bytes()); got > maxLine {
			t.Errorf("%s:%d: %d characters, and a line may have %d", name, n, got, maxLine)
		}
	}
	return lines.Err()
}
