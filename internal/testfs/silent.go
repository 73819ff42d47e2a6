// Package testfs has file systems that fail as those of a host do, for tests.
package testfs

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Silence is a file system that answers nothing, as one of a network does whose server is gone.
type Silence struct {
	Dir  string // where it is mounted
	fuse int
	once sync.Once
}

// Silent mounts one on dir, which it makes. It ends with the test.
func Silent(t *testing.T, dir string) *Silence {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0) // and nobody reads it
	if err != nil {
		t.Fatal(err)
	}
	s := &Silence{Dir: dir, fuse: fuse}
	t.Cleanup(s.End)
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fuse)
	if err := unix.Mount("silent", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatal(err)
	}
	return s
}

// End has all that waits for it fail, and unmounts it.
func (s *Silence) End() {
	s.once.Do(func() {
		_ = unix.Close(s.fuse)
		_ = unix.Unmount(s.Dir, unix.MNT_DETACH)
	})
}
