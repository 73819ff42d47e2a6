package named

import (
	"context"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// The bounds of Used.
const (
	usedEntries = 1 << 20
	usedWait    = 5 * time.Second
)

// Used returns the volume's usage of the host's disk, in bytes, or 0 if it cannot be read. For a Shared volume it
// is a lower bound: Used does not count below guesttree.MaxLevels nested directories, beyond 2^20 files, or after 5
// s or the end of ctx. Concurrent changes may or may not count.
func (s *Store) Used(ctx context.Context, v Volume) (bytes int64) {
	if v.Kind != Shared {
		info, err := os.Lstat(s.Image(v.Name))
		if err != nil {
			return 0
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			return st.Blocks * 512
		}
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, usedWait)
	defer cancel()
	var top unix.Stat_t
	if unix.Lstat(s.Files(v.Name), &top) == nil {
		bytes = top.Blocks * 512
	}
	bounds := guesttree.Bounds{Levels: guesttree.MaxLevels, Entries: usedEntries}
	_ = guesttree.Walk(ctx, s.Files(v.Name), bounds, func(_ int, _ string, st *unix.Stat_t) error {
		bytes += st.Blocks * 512
		return nil
	})
	return bytes
}
