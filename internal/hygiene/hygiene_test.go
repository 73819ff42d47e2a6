// Package hygiene holds what is true of the tree as a whole.
package hygiene

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
		data, err := os.ReadFile(path)
		if err == nil {
			lendsVMs(t, data, name)
			err = longLines(t, data, name)
		}
		return err
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

// vms is of tests that have VMs, unless they are run with -short, and of what these import.
var vms = regexp.MustCompile(`testing\.Short\(\)|/(enginetest|hypervisortest)"`)

// lendsVMs reports a package that tests have VMs from without the Makefile's knowing: it finds them
// by what their own files say.
func lendsVMs(t *testing.T, data []byte, name string) {
	t.Helper()
	dir := filepath.Base(filepath.Dir(name))
	if !strings.HasSuffix(name, "_test.go") && dir != "enginetest" && dir != "hypervisortest" && vms.Match(data) {
		t.Errorf("%s: make test would not find who has VMs from this package (VMTESTS in the Makefile)", name)
	}
}

// longLines reports each line of the file that is longer than maxLine.
func longLines(t *testing.T, data []byte, name string) error {
	t.Helper()
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, len(data)+1)
	for n := 1; lines.Scan(); n++ {
		if got := utf8.RuneCount(lines.Bytes()); got > maxLine {
			t.Errorf("%s:%d: %d characters, and a line may have %d", name, n, got, maxLine)
		}
	}
	return lines.Err()
}
