package dirwatch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

// TestOneForAll: any number of watches of any number of directories share one of the kernel's. Each is notified of its
// own directory, and nothing is left of them.
func TestOneForAll(t *testing.T) {
	var work sync.WaitGroup
	w := Watches{
		Spawn: func(f func()) bool { work.Go(f); return true },
		Match: func(e fsnotify.Event) bool { return !strings.HasSuffix(e.Name, "quiet") },
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	a, b := t.TempDir(), t.TempDir()
	var notes []<-chan struct{}
	var stops []func()
	for _, dir := range []string{a, a, b} {
		changed, stop, err := w.Add(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		notes, stops = append(notes, changed), append(stops, stop)
	}
	if n := inotifies(t); n != 1 {
		t.Errorf("%d watches of the kernel's, not 1", n)
	}
	if err := os.WriteFile(filepath.Join(a, "quiet"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, notes[2])
	select {
	case <-notes[0]:
		t.Error("notified of an event that does not match, or of another directory")
	default:
	}
	stops[0]()
	if err := os.WriteFile(filepath.Join(a, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	await(t, notes[1])
	stops[1]()
	if all := w.Watched(); len(all) != 1 || all[0] != b {
		t.Errorf("watched: %q", all)
	}
	if _, _, err := w.Add(ctx, filepath.Join(a, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
	stops[2]()
	work.Wait()
	if n := inotifies(t); n != 0 || w.Watched() != nil {
		t.Errorf("%d watches are left, of %q", n, w.Watched())
	}
}

// TestOwnerEnds: no goroutine outlives its owner, and none starts after its end.
func TestOwnerEnds(t *testing.T) {
	var work sync.WaitGroup
	open := true
	w := Watches{Spawn: func(f func()) bool {
		if open {
			work.Go(f)
		}
		return open
	}}
	ctx, cancel := context.WithCancel(t.Context())
	_, stop, err := w.Add(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	work.Wait()
	stop()
	open = false
	if _, _, err := w.Add(ctx, t.TempDir()); !errors.Is(err, ErrClosed) {
		t.Errorf("watched without a watcher: %v", err)
	}
	if n := inotifies(t); n != 0 {
		t.Errorf("%d watches are left", n)
	}
}

func await(t *testing.T, notes <-chan struct{}) {
	t.Helper()
	select {
	case <-notes:
	case <-time.After(10 * time.Second):
		t.Fatal("not notified")
	}
}

// inotifies counts this process's open inotify instances.
func inotifies(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range list {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); to == "anon_inode:inotify" {
			n++
		}
	}
	return n
}
