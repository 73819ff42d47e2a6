package storage

import (
	"os"
	"path/filepath"
	"testing"
)

// TestWithoutDrivers checks that a node without drivers reports no attached volumes, and keeps the reported ones if an
// earlier process has or may have mounted them.
func TestWithoutDrivers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, stands := range map[string]bool{"none": false, "empty": false, "mounted": true, "unreadable": true} {
		at := filepath.Join(dir, name)
		var err error
		switch name {
		case "empty":
			err = os.Mkdir(at, 0o700)
		case "mounted":
			err = os.MkdirAll(filepath.Join(at, "uid,v.json"), 0o700)
		case "unreadable":
			err = os.WriteFile(at, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if used := withoutDrivers(at); (used == nil) != stands || used != nil && len(used()) > 0 {
			t.Errorf("%s: the volumes that an earlier process reported are kept: %t", name, used == nil)
		}
	}
}
