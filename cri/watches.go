package cri

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

// watches tells when the files of volumes are replaced, by one watch of the
// kernel's for all directories: of those a user may have a hundred or so, with
// all other programs. It is there while anybody watches.
type watches struct {
	spawn func(func()) bool

	mu      sync.Mutex
	watcher *fsnotify.Watcher                     // nil while nobody watches
	dirs    map[string]map[chan struct{}]struct{} // who watches, by directory
}

// add watches a directory until stop is called, and then in changed, which has
// room for one, tells of each replacing of its files; also where one may have been
// missed.
func (w *watches) add(ctx context.Context, dir string) (changed <-chan struct{}, stop func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.watcher == nil {
		watcher, err := fsnotify.NewWatcher()
		if err != nil {
			return nil, nil, err
		}
		if !w.spawn(func() { w.run(ctx, watcher) }) {
			watcher.Close()
			return nil, nil, errClosed
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

func (w *watches) remove(dir string, told chan struct{}) {
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
func (w *watches) settle() {
	if len(w.dirs) == 0 {
		w.watcher.Close()
		w.watcher = nil
	}
}

// run passes on what a watcher tells until it is closed, or ctx ends.
func (w *watches) run(ctx context.Context, watcher *fsnotify.Watcher) {
	for {
		select {
		case event, open := <-watcher.Events:
			if !open {
				return
			}
			// The files are replaced by their link's renaming.
			if filepath.Base(event.Name) == atomicdir.Data && event.Has(fsnotify.Create) {
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
func (w *watches) tell(dir string) {
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
