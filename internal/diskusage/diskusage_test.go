package diskusage

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestOf: written data counts, at any depth; a file's claimed length does not.
func TestOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	empty := Of(dir)
	if err := os.MkdirAll(filepath.Join(dir, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	const written = 1 << 20
	f, err := os.Create(filepath.Join(dir, "a", "b", "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(bytes.Repeat([]byte("words"), written/5)); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil { // a file system may count a block when it has it
		t.Fatal(err)
	}
	if got := Of(dir) - empty; got < written*3/4 || got > 2*written {
		t.Errorf("%d bytes take %d", written, got)
	}
	if got := Of(filepath.Join(dir, "none")); got != 0 {
		t.Errorf("nothing takes %d", got)
	}
}
