package creds

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAs creates files of many users concurrently, in a directory of another user. Each file belongs to its user.
func TestAs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root acts as others")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	owner := func(path string) string {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%d:%d", st.Uid, st.Gid)
	}
	mkdir := func(name string) error { return unix.Mkdir(filepath.Join(dir, name), 0o755) }
	var all sync.WaitGroup
	for i := range uint32(50) {
		all.Go(func() {
			theirs, own := fmt.Sprintf("of-%d", i), fmt.Sprintf("own-%d", i)
			if err := As(i, i+1, func() error { return mkdir(theirs) }); err != nil {
				t.Error(err)
			}
			if err := mkdir(own); err != nil {
				t.Error(err)
			}
			if got := owner(filepath.Join(dir, theirs)); got != fmt.Sprintf("%d:%d", i, i+1) {
				t.Errorf("%s is of %s", theirs, got)
			}
			if got := owner(filepath.Join(dir, own)); got != "0:0" {
				t.Errorf("%s is of %s", own, got)
			}
		})
	}
	all.Wait()
	for _, id := range [][2]uint32{{none, 1}, {1, none}} {
		if err := As(id[0], id[1], func() error { return mkdir("nobody") }); !errors.Is(err, ErrIdentity) {
			t.Errorf("as %d: %v", id, err)
		}
	}
	failed := errors.New("failed")
	if err := As(5, 5, func() error { return failed }); !errors.Is(err, failed) {
		t.Errorf("an error becomes %v", err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = As(5, 5, func() error { panic("in the name of another") })
	}()
	if err := mkdir("after"); err != nil || owner(filepath.Join(dir, "after")) != "0:0" {
		t.Errorf("after a panic: %v, %s", err, owner(filepath.Join(dir, "after")))
	}
}
