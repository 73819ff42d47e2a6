package crun

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/agent/internal/launcher"
)

// TestContainer: the specification for the launcher is read once, and forgotten with the container.
func TestContainer(t *testing.T) {
	t.Parallel()
	r := &Runtime{state: t.TempDir(), containers: map[string]*launcher.Container{}}
	if _, err := r.container("c"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a container without a state: %v", err)
	}
	dir := filepath.Join(r.state, "c")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	configure := func() {
		if err := os.WriteFile(filepath.Join(dir, configFile), []byte(`{}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure()
	first, err := r.container("c")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.container("c"); err != nil || again != first {
		t.Errorf("read again: %v", err)
	}
	if err := r.Forget("c"); err != nil {
		t.Fatal(err)
	}
	if _, err := r.container("c"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a forgotten container: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "seccomp.bpf"), 0o700); err != nil { // cannot be read
		t.Fatal(err)
	}
	configure()
	if _, err := r.container("c"); err == nil {
		t.Error("an unreadable filter counts as none")
	}
}
