package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var pointCall = regexp.MustCompile(`fault\.Point\("([a-z.]+)"( \+ [a-z.A-Z]+)?\)`)

// TestTable compares the table with the source: each point has a row and each row a point. The days' samples
// together are the whole table.
func TestTable(t *testing.T) {
	var inSource []string
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() && (e.Name() == ".git" || e.Name() == "build" || e.Name() == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range pointCall.FindAllStringSubmatch(string(text), -1) {
			inSource = append(inSource, m[1]) // ends with a dot if a name follows
		}
		return nil
	})
	if err != nil || len(inSource) == 0 {
		t.Fatalf("read the source: %v, %d points", err, len(inSource))
	}
	rows := map[string]bool{}
	for _, s := range points {
		for _, p := range s.points {
			rows[p[0]] = true
		}
	}
	matches := func(point, row string) bool {
		return point == row || strings.HasSuffix(point, ".") && strings.HasPrefix(row, point)
	}
	var others string // the CRI's server and the node have their own tables
	for _, path := range []string{"cri/kill_test.go", "node/kill_test.go"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		others += string(text)
	}
	for _, point := range inSource {
		found := strings.Contains(others, `"`+point+`"`)
		for row := range rows {
			found = found || matches(point, row)
		}
		if !found {
			t.Errorf("point %q has no row", point)
		}
	}
	for row := range rows {
		found := false
		for _, point := range inSource {
			found = found || matches(point, row)
		}
		if !found {
			t.Errorf("row %q has no point", row)
		}
	}
	all, seen := table(), map[cell]int{}
	days := (len(all) + sampleSize - 1) / sampleSize
	for day := range days {
		for _, c := range sample(all, 20000+day, sampleSize) {
			seen[c]++
		}
	}
	for _, c := range all {
		if seen[c] != 1 {
			t.Errorf("%v is in %d samples of %d days", c, seen[c], days)
		}
	}
	t.Logf("%d cells, %d days", len(all), days)
}
