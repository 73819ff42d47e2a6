package named

import (
	"context"
	"io/fs"
	"os"
	"syscall"
)

// Used is what the volume takes of the host's disk, in bytes. Of what changes meanwhile it
// counts some; of a volume that cannot be read, nothing. A walk of many files ends with ctx.
func (s *Store) Used(ctx context.Context, v Volume) (bytes int64) {
	if v.Kind != Shared {
		info, err := os.Lstat(s.Image(v.Name))
		if err != nil {
			return 0
		}
		return blocks(info)
	}
	root, err := os.OpenRoot(s.Files(v.Name))
	if err != nil {
		return 0
	}
	defer root.Close() // no link that a pod puts there leads out of it
	_ = fs.WalkDir(root.FS(), ".", func(_ string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return fs.SkipAll
		}
		if err != nil {
			return nil //nolint:nilerr // as said
		}
		if info, err := d.Info(); err == nil {
			bytes += blocks(info)
		}
		return nil
	})
	return bytes
}

func blocks(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Blocks * 512
	}
	return 0
}
