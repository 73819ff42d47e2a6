package atomicfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteReplacesWhole(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, d := range []Durability{Volatile, Durable} {
		for _, text := range []string{"a long first content", "short"} {
			if err := Write(path, []byte(text), 0o640, d); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != text {
				t.Errorf("durable %v: read %q, %v", d, got, err)
			}
		}
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	assertAlone(t, dir)
}

func TestFailedWriteLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.Mkdir(path, 0o755); err != nil { // rename onto a directory fails
		t.Fatal(err)
	}
	if err := Write(path, []byte("x"), 0o600, Volatile); err == nil {
		t.Fatal("wrote onto a directory")
	}
	assertAlone(t, dir)
}

func assertAlone(t *testing.T, dir string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 {
		t.Errorf("left in the directory: %v, %v", list, err)
	}
}

func TestReadJSON(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	type state struct{ State string }
	var v state
	if err := ReadJSON(path, &v); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing: %v", err)
	}
	if err := WriteJSON(path, state{"running"}, 0o600, Durable); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A file that is cut anywhere is damaged, never a default value. Its last
	// byte, the newline, is not part of the value.
	for n := range len(whole) - 1 {
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		if err := ReadJSON(path, &v); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadJSON(path, &v); err != nil || v.State != "running" {
		t.Errorf("read %v, %v", v, err)
	}
	if err := os.Truncate(path, maxJSON+1); err != nil {
		t.Fatal(err)
	}
	if err := ReadJSON(path, &v); !errors.Is(err, ErrCorrupt) {
		t.Errorf("too large: %v", err)
	}
}
