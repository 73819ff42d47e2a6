package fsys_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/test/fsystest"
	"github.com/bulkhead-project/bulkhead/share/fsys"
)

func TestMain(m *testing.M) { fsystest.Main(m) }

// share is the mounted side and the host's side of a directory.
func share(t *testing.T, o fsys.Options, r fsys.Root) (mounted, host string) {
	t.Helper()
	host = t.TempDir()
	r.Name = "data"
	top := fsystest.Mount(t, fsystest.Spec{Options: o, Roots: []fsystest.Root{{Root: r, Path: host}}})
	return filepath.Join(top, r.Name), host
}

// TestSmoke writes here and reads there.
func TestSmoke(t *testing.T) {
	t.Parallel()
	mounted, host := share(t, fsys.Options{}, fsys.Root{})
	want := bytes.Repeat([]byte("0123456789abcdef"), 50_000)
	if err := os.MkdirAll(filepath.Join(mounted, "a/b/c"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mounted, "a/b/c/file"), want, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, side := range []string{mounted, host} {
		got, err := os.ReadFile(filepath.Join(side, "a/b/c/file"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes, %v", side, len(got), err)
		}
	}
	entries, err := os.ReadDir(filepath.Join(mounted, "a/b"))
	if err != nil || len(entries) != 1 || entries[0].Name() != "c" {
		t.Errorf("%v, %v", entries, err)
	}
	if err := os.Rename(filepath.Join(mounted, "a/b/c"), filepath.Join(mounted, "moved")); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(mounted, "moved")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(host); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
}
