package named

import (
	"context"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/guesttree"
)

// What Used looks at of a volume.
const (
	usedEntries = 1 << 20
	usedWait    = 5 * time.Second
)

// Used is what the volume takes of the host's disk, in bytes; of a Shared one it is at least that: files
// in more than guesttree.MaxLevels directories in each other are not counted, nor more than 2^20 files,
// nor what 5 s or ctx do not suffice for. Of what changes meanwhile it counts some; of a volume that
// cannot be read, nothing.
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
