package testfs

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

// Unmount unmounts what a test has mounted on dir, and fails the test where that is in use. Between its fork and its exec the child of
// a test beside has all descriptors of this process, those that were closed meanwhile among them: it is waited for.
func Unmount(t testing.TB, dir string) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond) // nothing tells of an exec
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
