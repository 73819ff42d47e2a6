package logs

import (
	"os"
	"path/filepath"
	"syscall"
)

// mostFiles bounds how many files of a container's logs are looked at.
const mostFiles = 1024

// Usage is what the files in a directory of logs take of the disk, in bytes, and how many there are. What is gone meanwhile
// is not counted.
func Usage(dir string) (bytes, files uint64) {
	d, err := os.Open(dir)
	if err != nil {
		return 0, 0
	}
	defer d.Close()
	names, _ := d.Readdirnames(mostFiles) // some are better than none
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
