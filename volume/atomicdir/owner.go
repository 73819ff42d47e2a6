package atomicdir

import (
	"io/fs"
	"syscall"
)

// owner returns a file's owner.
func owner(info fs.FileInfo) (uid, gid int) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return int(st.Uid), int(st.Gid)
	}
	return 0, 0
}
