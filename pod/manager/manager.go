// Package manager holds many supervised pods (package pod) for a door: it keeps a
// record of each on disk, takes over those that an earlier process left, starts,
// stops, resizes and removes them, and keeps their events and logs.
//
// It stands on the CRI's interfaces alone, and speaks no protocol: the door gives
// it what else a pod needs (Options, Door), and turns its errors and states into
// the language of its clients.
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

// Options say where a manager keeps its pods and on what they run.
type Options struct {
	// Dir holds a directory for each pod, named by its UID: its record, events and
	// logs. It survives a reboot.
	Dir string
	// VolumeDir holds a directory for each pod's volumes, named by its UID.
	VolumeDir string
	// Runtime is what the pods run on: it tells of their events, and is asked for what is left of a pod
	// whose record is damaged.
	Runtime internalapi.RuntimeService
	// Door makes the door's part of a pod that is new or was taken over.
	Door func(*Pod) Door
	// ByUID lets pods of one name be there at once, as an API server has them whose
	// clients force a pod's deletion.
	ByUID bool
	// Jobs has the pods of one owner wait for their turns, as many as podspec.Parallelism says.
	Jobs bool
	// Changed, if set, is called when the status of a pod has changed, or its run has
	// ended. It must not block.
	Changed func(*Pod)
	// Resized, if set, is called when a resize of a pod is done or was given up, and none has been asked for since:
	// the pod's Spec tells what it has.
	Resized func(*Pod)
	// Hold, if set, is called when a pod begins to be supervised, and what it
	// returns when that ends.
	Hold   func() (release func())
	Logger *slog.Logger
}

// Door is what a door adds to one pod.
type Door interface {
	// Configure completes the options of a run: runtime, images, network, node.
	// What the manager keeps is set already: the pod, its directories, its
	// objects, and what the record says of its machine.
	Configure(o *pod.Options) error
	// Event is told what happens to the pod, in order; it must not block.
	Event(pod.Event)
	// Release gives back what Configure has taken in, if it has: the pod has ended, or cannot be run. Configure
	// may come again.
	Release()
}

// Manager holds the pods of one door, by their UIDs. Methods may be called at once.
type Manager struct {
	o    Options
	ctx  context.Context // ends with Close; pods run on
	stop context.CancelFunc
	wg   sync.WaitGroup

	logs    dirwatch.Watches // of who follows them
	watch   *watch.Watch
	orphans orphans
	news    broadcast.Broadcast

	turns sync.Mutex // held by who gives or takes the turns of a Job's pods

	mu   sync.Mutex
	pods map[types.UID]*Pod
	// departed are the last pods that removed themselves when they had ended, the oldest first.
	departed []*Pod
}

// Open reads the pods of o.Dir back and supervises those that have not ended. A pod
// whose record is damaged, or that cannot be run, is there as failed, until it is
// removed. What runs for a client that is gone is ended. The caller calls Close.
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
		err := m.takeOver(ctx, d.Name())
		if errors.Is(err, errHost) {
			m.Close()
			return nil, err
		}
		if err != nil {
			m.o.Logger.Error("cannot adopt a pod", "uid", d.Name(), "error", err)
		}
	}
	for _, p := range m.All() { // all are there: they look at each other
		m.goOn(p)
	}
	m.look(ctx)
	return m, nil
}

// takeOver takes in a pod that an earlier manager left.
func (m *Manager) takeOver(ctx context.Context, uid string) error {
	var rec Record
	err := atomicfile.ReadJSON(filepath.Join(m.o.Dir, uid, recordFile), &rec)
	if errors.Is(err, os.ErrNotExist) {
		// A crash between its directory and its record: it never was.
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
		rec = m.salvage(ctx, uid, err)
	}
	p, err := m.newPod(rec, false)
	if err != nil {
		// Its machine may run: it must be there to be removed.
		m.o.Logger.Error("cannot continue a pod", "uid", uid, "error", err)
		named := m.salvage(ctx, uid, err)
		named.Pod.Name, named.Pod.Namespace, named.Pod.CreationTimestamp = rec.Pod.Name, rec.Pod.Namespace, rec.Pod.CreationTimestamp
		if p, err = m.newPod(named, false); err != nil {
			return err
		}
	}
	m.pods[types.UID(uid)] = p
	return nil
}

// errHost is matched by an error that says nothing about a record: whoever took it for damage would end a pod that runs well.
var errHost = errors.New("the host cannot read it now (the pod is unchanged: start again when the host can)")

func isHost(err error) bool {
	return slices.ContainsFunc([]error{syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ESTALE, syscall.ETIMEDOUT},
		func(one error) bool { return errors.Is(err, one) })
}

// goOn supervises a pod that was taken over, and ends the one that nobody wants.
func (m *Manager) goOn(p *Pod) {
	rec := p.record()
	unwanted := rec.Foreground || rec.Stopping || rec.Ended != nil && rec.Remove
	p.ending.Store(unwanted)
	if rec.Ended == nil {
		p.Run()
	}
	if unwanted {
		end := m.orphans.begin(always)
		m.wg.Go(func() { defer end(); p.orphaned() })
	}
}

// lookPatience bounds the wait for the pods that were taken over to be looked at.
const lookPatience = 5 * time.Second

// look waits until what is taken over has been looked at: who asks from then on
// is not told of pods that begin.
func (m *Manager) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookPatience)
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

// Close stops supervising and returns when nothing is done any more; the pods run
// on.
func (m *Manager) Close() {
	m.stop()
	m.wg.Wait()
}

// Running tells whether a pod has not ended. Its supervision may have, with Close.
func (m *Manager) Running() bool {
	return slices.ContainsFunc(m.All(), func(p *Pod) bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.rec.Ended == nil
	})
}

// News tells of any pod's events, and of its end.
func (m *Manager) News() <-chan struct{} { return m.news.Next() }

// Orphan takes in an end of pods that becomes nobody's as soon as gone says so,
// until end is called; Settle waits for it.
func (m *Manager) Orphan(gone func() bool) (end func()) { return m.orphans.begin(gone) }

// Settle returns when the ends of pods that nobody waits for, as of now, are over.
func (m *Manager) Settle(ctx context.Context) error { return m.orphans.settle(ctx) }
