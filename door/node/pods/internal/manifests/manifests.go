// Package manifests runs the static pods of a directory, as a kubelet's staticPodPath: each file has one pod, in YAML
// or JSON. The directory is watched, not polled. A changed file is a new pod. An invalid file is reported, and its
// earlier pod runs until the file is valid again or removed.
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

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/internal/dirwatch"
)

// Options configure a Source. Node is required.
type Options struct {
	// Dir is the absolute path of the directory. Its parent must exist, but Dir may be removed and created. Empty means
	// no pods.
	Dir string
	// Node is the name of the node, which is appended to the pods' names.
	Node string
	// Problem is called with each new problem of a file or of Dir. It must not block. If nil, problems are only logged.
	Problem func(file string, err error)
	Logger  *slog.Logger
	// QuietTime is the quiet time after a change before Dir is read; 0 means 200 ms.
	QuietTime time.Duration
}

const (
	quietTime = 200 * time.Millisecond
	// patience limits the wait for a directory that changes continuously.
	patience = 2 * time.Second
)

// Source has the pods of a directory. It is safe for concurrent use.
type Source struct {
	o       Options
	changed func(types.UID)
	gone    func(*corev1.Pod)
	done    chan struct{} // closed after the first read of the directory

	mu       sync.Mutex
	files    map[string]file // by name
	pods     map[types.UID]*corev1.Pod
	ever     map[types.UID]bool // pods that this process has seen
	fault    error              // why the directory could not be read
	reported map[string]string  // last reported problem of each file
}

// file is the result of reading a file.
type file struct {
	uid types.UID // of the present or earlier pod; empty for none
	pod *corev1.Pod
	err error
	// whole is set if the file has a valid pod, even one that another file defines already.
	whole bool
}

var _ control.Source = (*Source)(nil)

// New returns a Source. The caller calls Run once.
func New(o Options) *Source {
	o.QuietTime = cmp.Or(o.QuietTime, quietTime)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return &Source{
		o: o, done: make(chan struct{}), files: map[string]file{}, pods: map[types.UID]*corev1.Pod{},
		ever: map[types.UID]bool{}, reported: map[string]string{},
	}
}

// Subscribe implements control.Source.
func (s *Source) Subscribe(changed func(types.UID), gone func(*corev1.Pod)) error {
	s.changed, s.gone = changed, gone
	return nil
}

// Read returns a channel that is closed after the first read of the directory.
func (s *Source) Read() <-chan struct{} { return s.done }

// HasSynced implements control.Source.
func (s *Source) HasSynced() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// Get implements control.Source.
func (s *Source) Get(uid types.UID) *corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pods[uid]
}

// Named returns the pod of a name, or nil. The caller must not change it.
func (s *Source) Named(namespace, name string) *corev1.Pod {
	for _, p := range s.All() {
		if p.Namespace == namespace && p.Name == name {
			return p
		}
	}
	return nil
}

// All returns the pods. The caller must not change them.
func (s *Source) All() (all []*corev1.Pod) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pods {
		all = append(all, p)
	}
	return all
}

// Live implements control.Source. It returns an error for a pod that this process has not seen if the pod's file may be
// one that cannot be read.
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

// Delete implements control.Source. A static pod has no object to delete.
func (s *Source) Delete(context.Context, *corev1.Pod) error { return nil }

// Run follows the directory until ctx ends or the directory cannot be watched.
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
	// Changes of the directory itself are events in its parent.
	above, stop, err := watches.Add(ctx, filepath.Dir(s.o.Dir))
	if err != nil {
		return fmt.Errorf("watch %s: %w", filepath.Dir(s.o.Dir), err)
	}
	defer stop()
	own := &watch{watches: watches, dir: s.o.Dir}
	defer own.close()
	for {
		// The watch starts before the read, so that no change is missed.
		unwatched, unread := own.renew(ctx), s.read()
		s.problem(s.o.Dir, cmp.Or(unread, unwatched)) // a missing directory causes both errors
		if !s.HasSynced() {
			close(s.done)
		}
		select {
		case <-above:
		case <-own.changed:
		case <-ctx.Done():
			return nil
		}
		if !s.awaitQuiet(ctx, above, own.changed) {
			return nil
		}
	}
}

// awaitQuiet waits until the directory does not change for a while, so that half-written files are not read. It returns
// false when ctx ends.
func (s *Source) awaitQuiet(ctx context.Context, a, b <-chan struct{}) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet, enough := time.NewTimer(s.o.QuietTime), time.NewTimer(max(patience, s.o.QuietTime))
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
		quiet.Reset(s.o.QuietTime)
	}
}

// watch is the watch of a directory that may be removed and created.
type watch struct {
	watches *dirwatch.Watches
	dir     string
	is      os.FileInfo // the watched directory, or nil
	changed <-chan struct{}
	stop    func()
}

// renew watches the directory that exists now.
func (w *watch) renew(ctx context.Context) error {
	now, err := os.Stat(w.dir)
	if err != nil {
		w.close()
		return fmt.Errorf("watch the static pods: %w", err)
	}
	if w.is != nil && os.SameFile(now, w.is) {
		return nil
	}
	w.close()
	if w.changed, w.stop, err = w.watches.Add(ctx, w.dir); err != nil {
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	w.is = now
	return nil
}

func (w *watch) close() {
	if w.stop != nil {
		w.stop()
	}
	w.is, w.changed, w.stop = nil, nil, nil
}

// problem reports a new problem of a file. A nil error clears the last one.
func (s *Source) problem(name string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	s.mu.Lock()
	same := s.reported[name] == text
	s.reported[name] = text
	if text == "" {
		delete(s.reported, name)
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
