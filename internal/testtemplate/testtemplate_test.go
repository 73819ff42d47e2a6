package testtemplate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/testtree"
)

// TestShare: what one test has made the next ones have, until they remove it; what is half made nobody
// has, and in the end nothing is left.
func TestShare(t *testing.T) {
	base := t.TempDir()
	world := func(name string) (home, data, templates string) {
		home = filepath.Join(base, name)
		if err := os.Mkdir(home, 0o755); err != nil {
			t.Fatal(err)
		}
		data = filepath.Join(home, "d")
		return home, data, dirs.Roots{Data: data}.Templates()
	}
	t.Run("first", func(t *testing.T) {
		home, data, templates := world("a")
		Share(t, home, data)
		if found := testtree.List(t, home); len(found) != 0 {
			t.Errorf("the first finds %v", found)
		}
		for _, file := range []string{"k1/memory", "k1/template.json", "k2/template.json", ".k3.tmp/template.json", ".k1.lock", "disk"} {
			path := filepath.Join(templates, file)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
	for _, name := range []string{"second", "third"} {
		t.Run(name, func(t *testing.T) {
			home, data, templates := world(name)
			Share(t, home, data)
			for _, file := range []string{"k1/memory", "k1/template.json", "k2/template.json"} {
				if text, err := os.ReadFile(filepath.Join(templates, file)); err != nil || string(text) != file {
					t.Errorf("%s: %q, %v", file, text, err)
				}
			}
			if found, err := os.ReadDir(templates); err != nil || len(found) != 2 {
				t.Errorf("%v, %v", found, err)
			}
			if err := os.RemoveAll(filepath.Join(templates, "k1")); err != nil {
				t.Error(err)
			}
		})
	}
	if err := Remove(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(base, "*"))
	want := []string{filepath.Join(base, "a"), filepath.Join(base, "second"), filepath.Join(base, "third")}
	if err != nil || !cmp.Equal(want, left) {
		t.Errorf("left %v, %v", left, err)
	}
}
