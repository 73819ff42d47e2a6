// Package manifests has the static pods of a directory, as a kubelet's staticPodPath: a file that is one pod,
// in YAML or JSON, is run on the node. The directory is watched, not polled. A file that is changed is
// another pod; one that cannot be read, or is no pod, is told of, and the pod that it was before goes on until
// the file is a pod again, or is gone.
package manifests

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/pods"
	"github.com/bulkhead-project/bulkhead/internal/dirwatch"
)

// Options are a Source's. Node is required.
type Options struct {
	// Dir, absolute, has the files. Its parent must be there; Dir itself may come and go. Empty is no pods.
	Dir string
	// Node is the node's name, with which pods' names end.
	Node string
	// Problem is told what is wrong with a file, or with Dir, when that is new; it must not block. Nil is
	// nobody but the log.
	Problem func(file string, err error)
	Logger  *slog.Logger
	// Settle is how long nothing must happen in Dir before it is read; 0 is 200 ms.
	Settle time.Duration
}

const (
	settle = 200 * time.Millisecond
	// patience bounds the wait for a directory in which something happens all the time.
	patience = 2 * time.Second
)

// Source has the pods of a directory. Its methods may be called at once.
type Source struct {
	o       Options
	changed func(types.UID)
	gone    func(*corev1.Pod)
	done    chan struct{} // closed when the directory was read for the first time

	mu    sync.Mutex
	files map[string]file // by their names
	pods  map[types.UID]*corev1.Pod
	ever  map[types.UID]bool // those that this process has seen
	fault error              // why the directory could not be read
	told  map[string]string  // the problem that was told last, by file
}

// file is what was read of one.
type file struct {
	uid types.UID // of the pod that it is, or was; empty for none
	pod *corev1.Pod
	err error
	// whole: the file says a pod, which may be that of another file.
	whole bool
}

var _ pods.Source = (*Source)(nil)

// New makes a Source, whose owner calls Run once.
func New(o Options) *Source {
	o.Settle = cmp.Or(o.Settle, settle)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{
		o: o, done: make(chan struct{}), files: map[string]file{}, pods: map[types.UID]*corev1.Pod{},
		ever: map[types.UID]bool{}, told: map[string]string{},
	}
}

// Follow implements pods.Source.
func (s *Source) Follow(changed func(types.UID), gone func(*corev1.Pod)) error {
	s.changed, s.gone = changed, gone
	return nil
}

// Read tells when the directory was read for the first time.
func (s *Source) Read() <-chan struct{} { return s.done }

// HasSynced implements pods.Source.
func (s *Source) HasSynced() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Get implements pods.Source.
func (s *Source) Get(uid types.UID) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid]
}

// Named is the pod of a name, nil for none. It must not be changed.
func (s *Source) Named(namespace, name string) *corev1.Pod {
	for _, p := range s.All() {
		if p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

// All are the pods. They must not be changed.
func (s *Source) All() (all []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		all = append(all, p)
	}
	return all
}

// Live implements pods.Source. A pod that this process has not seen may be of a file that cannot be read
// now.
func (s *Source) Live(_ context.Context, _, _ string, uid types.UID) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.pods[uid] != nil:
		return true, nil
	case s.ever[uid]:
		return false, nil
	case s.fault != nil:
		return false, s.fault
	}
	for name, f := range s.files {
		if f.err != nil && f.uid == "" && !f.whole {
			return false, fmt.Errorf("the pod may be the pod of %s, which cannot be read: %w", name, f.err)
		}
	}
	return false, nil
}

// Delete implements pods.Source: there is no object.
func (s *Source) Delete(context.Context, *corev1.Pod) error { return nil }

// Run follows the directory until ctx ends, or it cannot be watched.
func (s *Source) Run(ctx context.Context) error {
	if s.o.Dir == "" {
		close(s.done)
		<-ctx.Done()
		return nil
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watches := &dirwatch.Watches{Spawn: func(f func()) bool { all.Go(f); return true }}
	// What happens to the directory itself is seen in the one above it.
	above, stop, err := watches.Add(ctx, filepath.Dir(s.o.Dir))
	if err != nil {
		return fmt.Errorf("watch %s: %w", filepath.Dir(s.o.Dir), err)
	}
	defer stop()
	own := &watch{watches: watches, dir: s.o.Dir}
	defer own.end()
	for {
		// Watched before it is read: nothing is missed.
		unwatched, unread := own.renew(ctx), s.read()
		s.problem(s.o.Dir, cmp.Or(unread, unwatched)) // one that is not there has one cause for both
		if !s.HasSynced() {
			close(s.done)
		}
		select {
		case <-above:
		case <-own.changed:
		case <-ctx.Done():
			return nil
		}
		if !s.calm(ctx, above, own.changed) {
			return nil
		}
	}
}

// calm waits until nothing happens for a while: a file that is being written is half a pod. It is false
// when ctx ends.
func (s *Source) calm(ctx context.Context, a, b <-chan struct{}) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet, enough := time.NewTimer(s.o.Settle), time.NewTimer(max(patience, s.o.Settle))
	defer quiet.Stop()
	defer enough.Stop()
	for {
		select {
		case <-a:
		case <-b:
		case <-quiet.C:
			return true
		case <-enough.C:
			return true
		case <-ctx.Done():
			return false
		}
		quiet.Reset(s.o.Settle)
	}
}

// watch is that of a directory that comes and goes.
type watch struct {
	watches *dirwatch.Watches
	dir     string
	is      os.FileInfo // what is watched, nil for nothing
	changed <-chan struct{}
	stop    func()
}

// renew has the directory be watched that is there now.
func (w *watch) renew(ctx context.Context) error {
	now, err := os.Stat(w.dir)
	if err != nil {
		w.end()
		return fmt.Errorf("watch the static pods: %w", err)
	}
	if w.is != nil && os.SameFile(now, w.is) {
		return nil
	}
	w.end()
	if w.changed, w.stop, err = w.watches.Add(ctx, w.dir); err != nil {
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	w.is = now
	return nil
}

func (w *watch) end() {
	if w.stop != nil {
		w.stop()
	}
	w.is, w.changed, w.stop = nil, nil, nil
}

// problem tells what is wrong with a file, nil for nothing, if that is new.
func (s *Source) problem(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	same := s.told[name] == text
	s.told[name] = text
	if text == "" {
		delete(s.told, name)
	}
	s.mu.Unlock()
	if same || err == nil {
		return
	}
	s.o.Logger.Warn("a file of static pods is invalid", "file", name, "error", err)
	if s.o.Problem != nil {
		s.o.Problem(name, err)
	}
}
