package certs

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/bulkhead-project/bulkhead/internal/dirwatch"
)

// watch reloads files after each change in their directories, until ctx ends. It watches directories because a file
// may be replaced by a link to another directory, as in a mounted Secret. A failed load keeps the earlier contents,
// because a certificate and its key are not replaced together.
func (s *Serving) watch(ctx context.Context, load func() error, files ...string) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watches := dirwatch.Watches{Spawn: func(f func()) bool { all.Go(f); return true }}
	changed := make(chan struct{}, 1)
	dirs := map[string]bool{}
	for _, file := range files {
		dir := filepath.Dir(file)
		if dirs[dir] {
			continue
		}
		dirs[dir] = true
		events, stop, err := watches.Add(ctx, dir)
		if err != nil {
			s.o.Logger.Warn("cannot watch a certificate for changes", "directory", dir, "error", err)
			continue
		}
		defer stop()
		all.Go(func() { forward(ctx, events, changed) })
	}
	for {
		// The first load sees changes from before the watch.
		if err := load(); err != nil {
			s.o.Logger.Warn("loading a certificate failed, keeping the earlier one", "error", err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// forward sends notifications from one channel to another.
func forward(ctx context.Context, from <-chan struct{}, to chan<- struct{}) {
	for {
		select {
		case <-from:
		case <-ctx.Done():
			return
		}
		select {
		case to <- struct{}{}:
		default:
		}
	}
}
