// Package manager holds many supervised pods (package pod) for a door. It keeps a record of each on disk, adopts pods
// of an earlier process, starts, stops, resizes and removes them, and keeps their events and logs.
//
// It uses only the CRI's interfaces, and no protocol. The door adds the other needs of a pod (Options, Door), and
// translates errors and states for its clients.
package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/broadcast"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/dirwatch"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/watch"
)

// Options configure the storage and the runtime of a manager's pods.
type Options struct {
	// Dir holds a directory for each pod, named by UID: its record, events and logs. It survives a reboot.
	Dir string
	// VolumeDir holds a directory for each pod's volumes, named by UID.
	VolumeDir string
	// Runtime runs the pods and delivers their events. It is also searched for the sandbox of a pod with a damaged
	// record.
	Runtime internalapi.RuntimeService
	// Door makes the door's part of a new or adopted pod.
	Door func(*Pod) Door
	// ByUID allows several pods with the same name. An API server has such pods after a forced deletion.
	ByUID bool
	// Jobs makes the pods of one owner wait for their turns, as podspec.Parallelism limits them.
	Jobs bool
	// Changed, if set, is called when a pod's status has changed or its run has ended. It must not block.
	Changed func(*Pod)
	// Resized, if set, is called when the latest resize of a pod is done or was refused. The pod's Spec then shows the
	// granted resources.
	Resized func(*Pod)
	// Hold, if set, is called when the supervision of a pod begins, and its result when the supervision ends.
	Hold   func() (release func())
	Logger *slog.Logger
}

// Door is a door's part of one pod.
type Door interface {
	// Configure completes the options of a run: runtime, images, network, node. The manager has already set the pod,
	// its directories, its objects, and the settings of its record.
	Configure(o *pod.Options) error
	// Event is called with each event of the pod, in order; it must not block.
	Event(pod.Event)
	// Release frees the resources that Configure has reserved, if any. The pod has ended or cannot be run. Configure
	// may be called again.
	Release()
}

// Manager holds the pods of one door, by UID. It is safe for concurrent use.
type Manager struct {
	o    Options
	ctx  context.Context // ends with Close; the pods continue
	stop context.CancelFunc
	wg   sync.WaitGroup

	logs     dirwatch.Watches // of followers
	watch    *watch.Watch
	detached detachedEnds
	news     broadcast.Broadcast

	turns sync.Mutex // held while turns of a Job's pods are given or taken

	mu   sync.Mutex
	pods map[types.UID]*Pod
	// removed are the last pods that removed themselves after their end, the oldest first.
	removed []*Pod
}

// Open reads back the pods in o.Dir and supervises those that have not ended. A pod that has a damaged record or cannot
// be run appears as failed until it is removed. Pods of lost clients are ended. The caller calls Close.
func Open(ctx context.Context, o Options) (*Manager, error) {
	m := &Manager{o: o, pods: map[types.UID]*Pod{}}
	if m.o.Logger == nil {
		m.o.Logger = slog.New(slog.DiscardHandler)
	}
	m.watch = watch.New(o.Runtime, m.o.Logger)
	m.logs.Spawn = func(f func()) bool { m.wg.Go(f); return true }
	m.ctx, m.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := dirs.Ensure(o.Dir, 0o700); err != nil {
		return nil, err
	}
	list, err := os.ReadDir(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the pods: %w", err)
	}
	for _, d := range list {
		err := m.adopt(ctx, d.Name())
		if errors.Is(err, errHost) {
			m.Close()
			return nil, err
		}
		if err != nil {
			m.o.Logger.Error("cannot adopt a pod", "uid", d.Name(), "error", err)
		}
	}
	for _, p := range m.All() { // all pods exist by now, because they look at each other
		m.resume(p)
	}
	m.awaitObserved(ctx)
	return m, nil
}

// adopt adopts a pod of an earlier manager.
func (m *Manager) adopt(ctx context.Context, uid string) error {
	var rec Record
	err := atomicfile.ReadJSON(filepath.Join(m.o.Dir, uid, recordFile), &rec)
	if errors.Is(err, os.ErrNotExist) {
		// A crash between the creation of the directory and the record: the pod never ran.
		return os.RemoveAll(filepath.Join(m.o.Dir, uid))
	}
	if isHost(err) {
		return fmt.Errorf("read the record of pod %s: %w: %w", uid, errHost, err)
	}
	if err == nil && (rec.Pod == nil || string(rec.Pod.UID) != uid) {
		err = errors.New("the record is for another pod")
	}
	if err != nil {
		m.o.Logger.Error("a pod's record cannot be read", "uid", uid, "error", err)
		rec = m.substitute(ctx, uid, err)
	}
	p, err := m.newPod(rec, false)
	if err != nil {
		// Its VM may run, so the pod must exist to be removed.
		m.o.Logger.Error("cannot continue a pod", "uid", uid, "error", err)
		named := m.substitute(ctx, uid, err)
		named.Pod.Name, named.Pod.Namespace, named.Pod.CreationTimestamp = rec.Pod.Name, rec.Pod.Namespace, rec.Pod.CreationTimestamp
		if p, err = m.newPod(named, false); err != nil {
			return err
		}
	}
	m.pods[types.UID(uid)] = p
	return nil
}

// errHost is matched by errors of the host that leave a record intact. Treating them as damage would end a healthy pod.
var errHost = errors.New("the host cannot read it now (the pod is unchanged: start again when the host can)")

func isHost(err error) bool {
	return slices.ContainsFunc([]error{syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ESTALE, syscall.ETIMEDOUT},
		func(one error) bool { return errors.Is(err, one) })
}

// resume supervises an adopted pod, and ends it if it is unwanted.
func (m *Manager) resume(p *Pod) {
	rec := p.record()
	unwanted := rec.Foreground || rec.Stopping || rec.Ended != nil && rec.Remove
	p.ending.Store(unwanted)
	if rec.Ended == nil {
		p.Run()
	}
	if unwanted {
		end := m.detached.add(always)
		m.wg.Go(func() { defer end(); p.endDetached() })
	}
}

// observePatience bounds the wait for the first observation of adopted pods.
const observePatience = 5 * time.Second

// awaitObserved waits until adopted pods have been observed, so that their statuses are not those of new pods.
func (m *Manager) awaitObserved(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, observePatience)
	defer cancel()
	for _, p := range m.All() {
		select {
		case <-p.supervised().Observed():
		case <-p.Ended():
		case <-ctx.Done():
			return
		}
	}
}

// Close stops the supervision and returns when all its work has ended. The pods continue to run.
func (m *Manager) Close() {
	m.stop()
	m.wg.Wait()
}

// Running reports whether a pod has not ended. After Close, a running pod has no supervision.
func (m *Manager) Running() bool {
	return slices.ContainsFunc(m.All(), func(p *Pod) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.rec.Ended == nil
	})
}

// News returns a channel that is closed at the next event or end of any pod.
func (m *Manager) News() <-chan struct{} { return m.news.Next() }

// TrackDetached registers an end of pods that WaitDetached waits for if gone returns true. Call end when it is over.
func (m *Manager) TrackDetached(gone func() bool) (end func()) { return m.detached.add(gone) }

// WaitDetached returns when the current detached ends are over.
func (m *Manager) WaitDetached(ctx context.Context) error { return m.detached.wait(ctx) }
