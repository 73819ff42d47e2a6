// Package testfs has file systems with the faults of a host's, for tests.
package testfs

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Silence is a file system that never answers, like a network file system without a server.
type Silence struct {
	Dir  string // its mount point
	fuse int
	once sync.Once
}

// Silent mounts one on dir, which it creates. It is unmounted when the test ends.
func Silent(t *testing.T, dir string) *Silence {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0) // never read
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

// End makes all waiting calls fail, and unmounts it.
func (s *Silence) End() {
	s.once.Do(func() {
		_ = unix.Close(s.fuse)
		_ = unix.Unmount(s.Dir, unix.MNT_DETACH)
	})
}
