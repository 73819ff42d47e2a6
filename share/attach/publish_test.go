package attach

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/share"
)

// TestPublishedMasked: a server that opens everything in its directory, under any name, never sees files below a mask.
func TestPublishedMasked(t *testing.T) {
	dir := t.TempDir()
	const masks = 300 // the last one hides the secret
	tree := Tree{Path: dir}
	for i := range masks {
		tree.Masks = append(tree.Masks, fmt.Sprintf("%03d", i))
		if err := os.Mkdir(filepath.Join(dir, tree.Masks[i]), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	last := tree.Masks[masks-1]
	if err := os.WriteFile(filepath.Join(dir, last, "secret"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	pid := namespace(t)
	at := "/proc/" + strconv.Itoa(pid) + "/root" + share.Dir
	done := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			names, _ := os.ReadDir(at)
			for _, name := range names {
				if _, err := os.Stat(filepath.Join(at, name.Name(), last, "secret")); err == nil {
					t.Errorf("the hidden file is visible in %s", name.Name())
					return
				}
			}
		}
	})
	tree.Name = share.Name(dir, false, false, false, share.Auto)
	err := attach(t, pid, tree)
	close(done)
	looking.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{tree.Name + "/000": true, tree.Name + "/" + last + "/secret": false} {
		if _, err := os.Stat(filepath.Join(at, name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLaterMounts: later mounts of the host below a share appear only if that was requested.
func TestLaterMounts(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := unix.Mount("", dir, "", unix.MS_SHARED, ""); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(dir, "below")
	if err := os.MkdirAll(filepath.Join(dir, "hidden"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(below, 0o755); err != nil {
		t.Fatal(err)
	}
	pid := namespace(t)
	apart, follows := share.Name(dir, false, false, false, share.Auto), share.Name(dir, false, true, false, share.Auto)
	masks := []string{"hidden"}
	err := attach(t, pid, Tree{Name: apart, Path: dir, Masks: masks}, Tree{Name: follows, Path: dir, Follow: true, Masks: masks})
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", below, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(below, "later"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	at := "/proc/" + strconv.Itoa(pid) + "/root" + share.Dir
	for name, want := range map[string]string{apart: "", follows: "later"} {
		if got := strings.Join(list(t, filepath.Join(at, name, "below")), " "); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if _, err := os.Stat(filepath.Join(at, name, "hidden")); err != nil {
			t.Error(err)
		}
	}
	// A mask exists only for the server.
	if err := unix.Mkdir(filepath.Join(dir, "hidden", "new"), 0o755); err != nil {
		t.Errorf("the mask came to the host: %v", err)
	}
}
