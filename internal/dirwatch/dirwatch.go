// Package dirwatch lets many watchers share one inotify instance: the kernel allows a user only about a hundred, for
// all programs.
package dirwatch

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// ErrClosed is returned by Add when Spawn runs no more functions.
var ErrClosed = errors.New("no directory is watched any more")

// Watches are the watches of one owner. Without watchers they use no resources. Set Spawn before the first Add. Methods
// are safe for concurrent use.
type Watches struct {
	// Spawn runs a function in a goroutine of the owner, or returns false.
	Spawn func(func()) bool
	// Match selects the events to report; nil means all.
	Match func(fsnotify.Event) bool

	mu      sync.Mutex
	watcher *fsnotify.Watcher                     // nil without watchers
	dirs    map[string]map[chan struct{}]struct{} // watchers, by directory
}

// Add watches a directory until stop is called; call it once. changed holds one value and signals that the directory
// has changed, or that an event may have been missed. ctx is the owner's and must always be the same: all watches end
// with it.
func (w *Watches) Add(ctx context.Context, dir string) (changed <-chan struct{}, stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, nil, err
		}
		if !w.Spawn(func() { w.run(ctx, watcher) }) {
			watcher.Close()
			return nil, nil, ErrClosed
		}
		w.watcher, w.dirs = watcher, map[string]map[chan struct{}]struct{}{}
	}
	if err := w.watcher.Add(dir); err != nil {
		w.closeIfIdle()
		return nil, nil, err
	}
	notes := make(chan struct{}, 1)
	if w.dirs[dir] == nil {
		w.dirs[dir] = map[chan struct{}]struct{}{}
	}
	w.dirs[dir][notes] = struct{}{}
	return notes, func() { w.remove(dir, notes) }, nil
}

// Watched returns the directories that the kernel watches.
func (w *Watches) Watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watcher == nil {
		return nil
	}
	return w.watcher.WatchList()
}

func (w *Watches) remove(dir string, notes chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.dirs[dir], notes)
	if len(w.dirs[dir]) > 0 {
		return
	}
	delete(w.dirs, dir)
	_ = w.watcher.Remove(dir) // a directory that was removed is not watched any more
	w.closeIfIdle()
}

// closeIfIdle ends the inotify instance without watchers; mu is held.
func (w *Watches) closeIfIdle() {
	if len(w.dirs) == 0 {
		w.watcher.Close()
		w.watcher = nil
	}
}

// run passes on events until the watcher is closed, or ctx ends.
func (w *Watches) run(ctx context.Context, watcher *fsnotify.Watcher) {
	for {
		select {
		case event, open := <-watcher.Events:
			if !open {
				return
			}
			if w.Match == nil || w.Match(event) {
				w.notify(filepath.Dir(event.Name))
			}
		case _, open := <-watcher.Errors:
			if !open {
				return
			}
			w.notify("") // events may have been lost
		case <-ctx.Done():
			return
		}
	}
}

// notify notifies the watchers of dir; empty means all.
func (w *Watches) notify(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for of, all := range w.dirs {
		if dir != "" && dir != of {
			continue
		}
		for notes := range all {
			select {
			case notes <- struct{}{}:
			default:
			}
		}
	}
}
