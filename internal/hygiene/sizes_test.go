package hygiene

import (
	"bytes"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The bounds of a package's lines and of a type's methods, without tests. A larger one does more than one job.
const (
	maxLines   = 2500
	maxMethods = 50
)

// largePackages and largeTypes exceed the bounds. They must not grow. An entry is lowered when its package or type has become
// much smaller, and removed when it is within the bound.
var (
	largePackages = map[string]int{
		"door/oci":         2650,
		"engine":           4900,
		"image":            2950,
		"pod":              2650,
		"pod/podapi":       3250,
		"sandbox":          3688,
		"tools/bench/rows": 2550,
	}
	largeTypes = map[string]int{
		"engine.Engine":          59,
		"oci/convert.conversion": 55,
		"pod/podapi.checker":     60,
		"sandbox.Sandbox":        73,
		"share/fsys.FS":          57,
	}
)

// sizes are the lines of packages, and the methods of types by package and name.
type sizes struct{ lines, methods map[string]int }

var method = regexp.MustCompile(`(?m)^func \(\w* ?\*?(\w+)(?:\[[\w, ]+\])?\) `)

// add counts a file.
func (s sizes) add(name string, data []byte) {
	if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "internal/test/") {
		return
	}
	dir := filepath.Dir(name)
	s.lines[dir] += bytes.Count(data, []byte("\n"))
	for _, m := range method.FindAllSubmatch(data, -1) {
		s.methods[dir+"."+string(m[1])]++
	}
}

// slack is how much smaller than its entry a size may be.
const slack = 0.9

// check reports sizes beyond their bounds, and entries that are too high.
func check(t *testing.T, what string, all map[string]int, most int, large map[string]int) {
	t.Helper()
	for name, n := range all {
		bound, listed := large[name]
		switch {
		case listed && (n <= most || float64(n) < slack*float64(bound)):
			t.Errorf("%s %s: %d; lower or remove its entry %d", what, name, n, bound)
		case n > max(most, bound):
			t.Errorf("%s %s: %d, and may be %d", what, name, n, max(most, bound))
		}
	}
	for name := range large {
		if all[name] == 0 {
			t.Errorf("%s %s: it does not exist; remove its entry", what, name)
		}
	}
}
