package certs

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/bulkhead-project/bulkhead/internal/dirwatch"
)

// follow loads files again whenever something has happened in their directories, until ctx ends: a file may be
// replaced by a link to another directory, as those of a Secret are. What cannot be loaded leaves what was there before,
// for a certificate and its key come one after the other.
func (s *Serving) follow(ctx context.Context, load func() error, files ...string) {
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
		told, stop, err := watches.Add(ctx, dir)
		if err != nil {
			s.o.Logger.Warn("cannot watch a certificate for changes", "directory", dir, "error", err)
			continue
		}
		defer stop()
		all.Go(func() { pass(ctx, told, changed) })
	}
	for {
		// The first is for what has changed before it was watched.
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

// pass tells one channel what another is told.
func pass(ctx context.Context, from <-chan struct{}, to chan<- struct{}) {
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
