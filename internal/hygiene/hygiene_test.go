// Package hygiene holds what is true of the tree as a whole.
package hygiene

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
)

// maxLine bounds the characters in a line of Go, tests included.
const maxLine = 140

// TestTree looks at every Go file that is not generated.
func TestTree(t *testing.T) {
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	all := sizes{lines: map[string]int{}, methods: map[string]int{}}
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
		data, err := os.ReadFile(path)
		if err == nil {
			all.add(name, data)
			if dir := filepath.Dir(name); dir != "internal/hygiene" {
				skipsWhole(t, data, name)
			}
			if strings.HasSuffix(name, "_test.go") {
				dependsOnTree(t, data, name)
			}
			err = longLines(t, data, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all.lines) < 50 {
		t.Fatalf("only %d packages were found in %s", len(all.lines), root)
	}
	check(t, "lines of package", all.lines, maxLines, largePackages)
	check(t, "methods of type", all.methods, maxMethods, largeTypes)
}

// short is a use of testing.Short, and skips the only one that make test knows: its second pass runs those tests
// that its first one skipped.
var (
	short = regexp.MustCompile(`testing\.Short\(\)`)
	skips = regexp.MustCompile(`(?m)^\t+if testing\.Short\(\) \{\n\t+(t|tb)\.Skip\("`)
)

// skipsWhole reports a test that does less with -short, and is not skipped.
func skipsWhole(t *testing.T, data []byte, name string) {
	t.Helper()
	if len(short.FindAll(data, -1)) != len(skips.FindAll(data, -1)) {
		t.Errorf("%s: make test would lose what is left out with -short: if testing.Short() { t.Skip(…) } is all that it knows", name)
	}
}

// goCommand is a test's go command that go's cache of test results does not know of.
var goCommand = regexp.MustCompile(`exec\.Command(Context)?\((\w+(\.\w+)*(\(\))?, )?"go"`)

// dependsOnTree reports a test whose cached result would not depend on the files that a go command reads.
func dependsOnTree(t *testing.T, data []byte, name string) {
	t.Helper()
	if goCommand.Match(data) {
		t.Errorf("%s: use internal/test/testgo for go commands", name)
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
