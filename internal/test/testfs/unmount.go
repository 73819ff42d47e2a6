package testfs

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// Unmount unmounts a test's file system on dir, and fails the test if it is in use. It waits for children of concurrent
// tests: between fork and exec they have all descriptors of this process, including those that were closed meanwhile.
func Unmount(t testing.TB, dir string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond) // there is no event for an exec
	defer tick.Stop()
	end := time.Now().Add(testdeadline.For(2 * time.Second))
	err := unix.Unmount(dir, 0)
	for errors.Is(err, unix.EBUSY) && time.Now().Before(end) {
		<-tick.C
		err = unix.Unmount(dir, 0)
	}
	if err != nil {
		t.Errorf("unmount %s, so a test has left something open: %v", dir, err)
		_ = unix.Unmount(dir, unix.MNT_FORCE|unix.MNT_DETACH)
	}
}
