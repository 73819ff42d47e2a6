package check

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// TestSweep checks that Sweep removes the files of killed processes and keeps those of live ones.
func TestSweep(t *testing.T) {
	m := &host{options: Options{Roots: dirs.Roots{State: t.TempDir()}}}
	living, leave, err := m.room()
	if err != nil {
		t.Fatal(err)
	}
	killed := filepath.Join(m.options.Roots.State, "c1")
	other := filepath.Join(m.options.Roots.State, "cri")
	for _, dir := range []string{killed, other, living} {
		if err := os.MkdirAll(filepath.Join(dir, forkDir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := Sweep(t.Context(), m.options.Roots); n != 1 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	for dir, stays := range map[string]bool{killed: false, other: true, living: true} {
		if _, err := os.Stat(dir); (err == nil) != stays {
			t.Errorf("%s: %v", dir, err)
		}
	}
	leave()
	if _, err := os.Stat(living); err == nil {
		t.Errorf("%s is still there", living)
	}
}
