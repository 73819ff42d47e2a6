package shares

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/test/testfs"
)

// TestLook: the wait for a silent host is bounded.
func TestLook(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	silent := testfs.Silent(t, filepath.Join(dir, "silent"))
	for path, want := range map[string]error{
		dir: nil, filepath.Join(dir, "none"): os.ErrNotExist, filepath.Join(silent.Dir, "x"): ErrSilent,
	} {
		if _, err := device(path, 100*time.Millisecond); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}
