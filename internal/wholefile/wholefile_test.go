package wholefile

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, size := range map[string]int{"empty": 0, "small": 100, "page": small, "large": small + 1} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.Repeat([]byte("x"), size), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		path  string
		size  int64
		read  int // at least; -1 for a file that is read by its size
		exact bool
	}{
		{filepath.Join(dir, "empty"), 0, 0, true}, {filepath.Join(dir, "small"), 100, 100, true},
		{filepath.Join(dir, "page"), small, small, true},
		{filepath.Join(dir, "large"), small + 1, -1, true},
		{filepath.Join(dir, "small"), 200, 100, true},     // it has become shorter
		{filepath.Join(dir, "small"), 50, 100, true},      // it has grown
		{filepath.Join(dir, "large"), 50, 50, true},       // it has grown much
		{filepath.Join(dir, "large"), 0, small + 1, true}, // its size was false
		{"/proc/version", 0, 20, false}, {"/sys/kernel/mm/transparent_hugepage/enabled", 4096, 5, false},
	} {
		f, err := os.Open(test.path)
		if os.IsNotExist(err) {
			continue // a kernel without it
		}
		if err != nil {
			t.Fatal(err)
		}
		content, whole, err := Start(f, test.size)
		f.Close()
		if err != nil || whole != (test.read >= 0) || test.read >= 0 && (len(content) < test.read || test.exact && len(content) > test.read) {
			t.Errorf("%s of %d bytes: %d bytes, %v, %v", test.path, test.size, len(content), whole, err)
		}
	}
}

// TestNoWait: a file of the kernel without content now, or with too much, is an error.
func TestNoWait(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/proc/kmsg", "/proc/kallsyms"} {
		f, err := os.OpenFile(path, os.O_RDONLY|0o4000, 0)
		if err != nil {
			t.Logf("%s: %v", path, err)
			continue
		}
		content, whole, err := Start(f, 0)
		f.Close()
		if err == nil && (!whole || len(content) > Most) {
			t.Errorf("%s: %d bytes, %v", path, len(content), whole)
		}
	}
	if f, err := os.Open("/proc"); err != nil || !Kernel(f) {
		t.Errorf("%v, or /proc is taken for an ordinary directory", err)
	}
	if f, err := os.Open(t.TempDir()); err != nil || Kernel(f) {
		t.Errorf("%v, or a directory is taken for the kernel's", err)
	}
}
