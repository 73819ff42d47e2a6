// Package plugins watches the directory with the sockets of a kubelet's plugins and registers the plugins behind them.
// A plugin stays registered while its socket is the same file. When the socket is removed, the plugin is unregistered.
// A new socket is a new plugin.
package plugins

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/retry"
)

const (
	// maxSockets limits the number of plugins. Further ones are logged and ignored.
	maxSockets = 64
	// quietTime is the quiet time after a change of the directory before it is read.
	quietTime = 50 * time.Millisecond
	// callTimeout limits each call to a registration socket.
	callTimeout = 10 * time.Second
)

// pauses are the pauses between attempts to register one plugin, or to watch the directory.
var pauses = retry.Pauses{First: 500 * time.Millisecond, Last: 2 * time.Minute}

// ErrUnsupported is matched by the error of a plugin that must not be retried.
var ErrUnsupported = errors.New("not supported by this node")

// Options configure a Watcher. All but Logger are required.
type Options struct {
	// Dir is the watched directory. It is created if it is missing.
	Dir string
	// Root is the directory below which endpoints must be.
	Root string
	// Register registers a plugin. It is retried after an error, unless the error matches ErrUnsupported. ctx ends when
	// the socket is removed or the Watcher stops.
	Register func(ctx context.Context, p Plugin) (*Registration, error)
	Logger   *slog.Logger
}

// Registration is a registered plugin.
type Registration struct {
	// Unregister removes the plugin.
	Unregister func()
	// Again is closed when the plugin must be unregistered and registered again. A nil channel means never.
	Again <-chan struct{}
}

// Watcher watches the directory.
type Watcher struct {
	o       Options
	workers map[string]*worker // by socket, used only by Run
	all     sync.WaitGroup
	// open is fsnotify.NewWatcher.
	open func() (*fsnotify.Watcher, error)
}

// worker keeps one socket registered.
type worker struct {
	file identity
	stop context.CancelFunc
	done chan struct{}
}

// identity distinguishes a socket from a later one of the same name.
type identity struct {
	dev, ino uint64
	changed  unix.Timespec
}

// New returns a Watcher. The caller calls Run once.
func New(o Options) *Watcher {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Watcher{o: o, workers: map[string]*worker{}, open: fsnotify.NewWatcher}
}

// Run watches until ctx ends. It does not unregister plugins at the end, because the next process finds them. While the
// directory cannot be watched, it is read with growing pauses.
func (w *Watcher) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer w.all.Wait()
	defer cancel()
	var (
		watcher *fsnotify.Watcher // nil while there is none
		events  <-chan fsnotify.Event
		failed  <-chan error
	)
	defer func() {
		if watcher != nil {
			_ = watcher.Close()
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pauses := pauses; ; {
		select {
		case <-events:
			timer.Reset(quietTime)
		case err := <-failed: // events may be lost
			w.o.Logger.Warn("watch for plugins", "error", err)
			timer.Reset(quietTime)
		case <-timer.C:
			var err error
			if watcher, err = w.watch(watcher); watcher != nil {
				events, failed = watcher.Events, watcher.Errors
			}
			if err != nil {
				pause := pauses.Next()
				w.o.Logger.Warn("watching the directory of plugins failed, retrying", "error", err, "after", pause)
				timer.Reset(pause)
			} else {
				pauses.Reset()
			}
			w.scan(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// watch watches the directory, which it creates if it is missing. It creates a watcher if there is none. It returns the
// watcher also with an error.
func (w *Watcher) watch(watcher *fsnotify.Watcher) (*fsnotify.Watcher, error) {
	if watcher == nil {
		var err error
		if watcher, err = w.open(); err != nil {
			return nil, fmt.Errorf("watch for plugins: %w", err)
		}
	}
	if err := os.MkdirAll(w.o.Dir, 0o750); err != nil {
		return watcher, fmt.Errorf("create the directory of plugins: %w", err)
	}
	if err := watcher.Add(w.o.Dir); err != nil {
		return watcher, fmt.Errorf("watch for plugins: %w", err)
	}
	return watcher, nil
}

// scan compares the sockets in the directory with the workers.
func (w *Watcher) scan(ctx context.Context) {
	entries, err := os.ReadDir(w.o.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.o.Logger.Warn("reading the directory of plugins failed", "error", err)
		return
	}
	there := map[string]identity{}
	for _, e := range entries {
		if e.Type()&fs.ModeSocket == 0 || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		if len(there) == maxSockets {
			w.o.Logger.Warn("too many plugin sockets, ignoring the rest", "dir", w.o.Dir, "most", maxSockets)
			break
		}
		path := filepath.Join(w.o.Dir, e.Name())
		if file, ok := identify(path); ok {
			there[path] = file
		}
	}
	for path, one := range w.workers {
		if there[path] != one.file {
			one.stop()
			<-one.done
			delete(w.workers, path)
		}
	}
	for path, file := range there {
		if w.workers[path] == nil {
			w.start(ctx, path, file)
		}
	}
}

// start starts the worker of a socket. A plugin is unregistered when its socket is removed, but not when the Watcher
// stops.
func (w *Watcher) start(ctx context.Context, path string, file identity) {
	own, stop := context.WithCancel(ctx)
	one := &worker{file: file, stop: stop, done: make(chan struct{})}
	w.workers[path] = one
	w.all.Go(func() {
		defer close(one.done)
		defer stop()
		for w.serve(ctx, own, path) {
		}
	})
}

// serve keeps a socket registered until own ends. It returns true if the plugin must be registered again.
func (w *Watcher) serve(ctx, own context.Context, path string) (again bool) {
	r := w.register(own, path)
	if r == nil {
		<-own.Done()
		return false
	}
	select {
	case <-r.Again:
		r.Unregister()
		return own.Err() == nil
	case <-own.Done():
	}
	if ctx.Err() == nil {
		r.Unregister()
		w.o.Logger.Info("a plugin was unregistered", "socket", path)
	}
	return false
}

func identify(path string) (identity, bool) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return identity{}, false
	}
	return identity{dev: st.Dev, ino: st.Ino, changed: st.Ctim}, true
}
