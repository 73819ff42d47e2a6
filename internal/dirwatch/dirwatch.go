// Package dirwatch tells many who watch directories by one watch of the kernel's:
// of those a user may have a hundred or so, with all other programs.
package dirwatch

import (
	"context"
	"errors"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// ErrClosed is Add's when Spawn runs nothing any more.
var ErrClosed = errors.New("no directory is watched any more")

// Watches are those of one owner. They take up nothing while nobody watches. Spawn
// has to be set before the first Add; methods may be called at once.
type Watches struct {
	// Spawn runs a function in a goroutine of the owner's, or tells that it
	// does not.
	Spawn func(func()) bool
	// Match says which events are told; nil is all.
	Match func(fsnotify.Event) bool

	mu      sync.Mutex
	watcher *fsnotify.Watcher                     // nil while nobody watches
	dirs    map[string]map[chan struct{}]struct{} // who watches, by directory
}

// Add watches a directory until stop is called, once, and then in changed, which
// has room for one, tells that something has happened in it; also where that may
// have been missed. ctx is the owner's, the same for all: with it everything ends.
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
		w.settle()
		return nil, nil, err
	}
	told := make(chan struct{}, 1)
	if w.dirs[dir] == nil {
		w.dirs[dir] = map[chan struct{}]struct{}{}
	}
	w.dirs[dir][told] = struct{}{}
	return told, func() { w.remove(dir, told) }, nil
}

// Watched are the directories that the kernel watches.
func (w *Watches) Watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watcher == nil {
		return nil
	}
	return w.watcher.WatchList()
}

func (w *Watches) remove(dir string, told chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.dirs[dir], told)
	if len(w.dirs[dir]) > 0 {
		return
	}
	delete(w.dirs, dir)
	_ = w.watcher.Remove(dir) // a directory that has gone is not watched any more
	w.settle()
}

// settle ends the watch when nobody watches; mu is held.
func (w *Watches) settle() {
	if len(w.dirs) == 0 {
		w.watcher.Close()
		w.watcher = nil
	}
}

// run passes on what a watcher tells until it is closed, or ctx ends.
func (w *Watches) run(ctx context.Context, watcher *fsnotify.Watcher) {
	for {
		select {
		case event, open := <-watcher.Events:
			if !open {
				return
			}
			if w.Match == nil || w.Match(event) {
				w.tell(filepath.Dir(event.Name))
			}
		case _, open := <-watcher.Errors:
			if !open {
				return
			}
			w.tell("") // events may have been lost
		case <-ctx.Done():
			return
		}
	}
}

// tell tells who watches dir; empty is all.
func (w *Watches) tell(dir string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for of, all := range w.dirs {
		if dir != "" && dir != of {
			continue
		}
		for told := range all {
			select {
			case told <- struct{}{}:
			default:
			}
		}
	}
}
