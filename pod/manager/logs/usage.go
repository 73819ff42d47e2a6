package logs

import (
	"os"
	"path/filepath"
	"syscall"
)

// mostFiles bounds how many log files of a container are checked.
const mostFiles = 1024

// Usage returns the disk usage of a directory of logs, in bytes, and its number of files. It ignores files that
// disappear meanwhile.
func Usage(dir string) (bytes, files uint64) {
	d, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(mostFiles) // a partial list is better than none
	for _, name := range names {
		info, err := os.Lstat(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			bytes += uint64(st.Blocks) * 512
			files++
		}
	}
	return bytes, files
}
