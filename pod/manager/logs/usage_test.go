package logs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestUsage: Usage counts disk blocks, not lengths. A missing directory has none.
func TestUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sparse := filepath.Join(dir, "1.log")
	err := errors.Join(os.WriteFile(filepath.Join(dir, "0.log"), make([]byte, 100_000), 0o600), os.WriteFile(sparse, nil, 0o600),
		os.Truncate(sparse, 1<<40), os.Symlink("/etc/passwd", filepath.Join(dir, "2.log")))
	if err != nil {
		t.Fatal(err)
	}
	if bytes, files := Usage(dir); bytes < 100_000 || bytes > 200_000 || files != 3 {
		t.Errorf("%d bytes, %d files", bytes, files)
	}
	if bytes, files := Usage(filepath.Join(dir, "none")); bytes != 0 || files != 0 {
		t.Errorf("Usage of a missing directory: got %d bytes, %d files, want none", bytes, files)
	}
}
