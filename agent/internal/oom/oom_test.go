package oom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/agent/internal/cgroup"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// group creates a directory with the file of a cgroup.
func group(t *testing.T, kills int) cgroup.Dir {
	t.Helper()
	dir := cgroup.Dir(t.TempDir())
	set(t, dir, kills)
	return dir
}

func set(t *testing.T, dir cgroup.Dir, kills int) {
	t.Helper()
	text := fmt.Sprintf("low 0\nhigh 0\nmax 9\noom 1\noom_kill %d\n", kills)
	if err := os.WriteFile(filepath.Join(string(dir), eventsFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(20*time.Second))
	defer cancel()
	var w Watch
	a, b := group(t, 2), group(t, 0)
	for id, dir := range map[string]cgroup.Dir{"a": a, "b": b} {
		if err := w.Add(id, dir); err != nil {
			t.Fatal(err)
		}
	}
	known := map[string]uint64{}
	next := func(change func(), want map[string]uint64) {
		t.Helper()
		if change != nil {
			go change()
		}
		got, err := w.Wait(ctx, known)
		if err != nil || !maps.Equal(got, want) {
			t.Fatalf("kills %v, %v; want %v", got, err, want)
		}
		known = got
	}
	next(nil, map[string]uint64{"a": 2}) // before the watch
	next(func() { set(t, b, 1) }, map[string]uint64{"a": 2, "b": 1})
	c := group(t, 3)
	next(func() { w.Add("c", c) }, map[string]uint64{"a": 2, "b": 1, "c": 3})
	next(func() { set(t, c, 4) }, map[string]uint64{"a": 2, "b": 1, "c": 4})
	// A removed container is not reported, and another one of its name starts from zero.
	os.Remove(filepath.Join(string(b), eventsFile))
	w.Remove("b")
	set(t, a, 5)
	next(nil, map[string]uint64{"a": 5, "c": 4})
	known["b"] = 1
	next(func() { w.Add("b", group(t, 7)) }, map[string]uint64{"a": 5, "b": 7, "c": 4})
	if err := w.Add("none", cgroup.Dir(t.TempDir())); err != nil {
		t.Errorf("a container that has ended: %v", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := w.Wait(ended, known); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the wait: %v", err)
	}
}

// TestWatchOfALimit: other changes of the file wake no waiter.
func TestWatchOfALimit(t *testing.T) {
	t.Parallel()
	var w Watch
	a := group(t, 1)
	if err := w.Add("a", a); err != nil {
		t.Fatal(err)
	}
	_, changed, err := w.counts()
	if err != nil {
		t.Fatal(err)
	}
	set(t, a, 1)
	w.mu.Lock()
	w.count()
	w.mu.Unlock()
	select {
	case <-changed:
		t.Error("a change without a kill")
	default:
	}
}
