package staging

import (
	"os"
	"path/filepath"
)

// Sheltered reports whether other users of the host cannot reach a directory. Only there may a guest create set-user-id
// programs, because the host's users could run them.
func Sheltered(dir string) bool {
	at, err := filepath.EvalSymlinks(dir)
	for err == nil {
		var info os.FileInfo
		if info, err = os.Stat(at); err == nil && info.Mode()&0o001 == 0 {
			return true
		}
		if at == "/" {
			return false
		}
		at = filepath.Dir(at)
	}
	return false
}
