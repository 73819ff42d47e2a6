package manager

import (
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/manager/events"
	"github.com/bulkhead-project/bulkhead/pod/manager/logs"
	"github.com/bulkhead-project/bulkhead/volume"
)

// The contents of a pod's directory, beside recordFile.
const (
	logsDir     = "logs"
	messagesDir = "messages"
	eventsFile  = "events.jsonl"
)

// Pod is one pod of a Manager, from Add or Open until its removal. It may be run more than once. It is safe for
// concurrent use.
type Pod struct {
	identity
	m       *Manager
	door    Door
	dir     string
	events  *events.Log
	objects *volume.Set
	ending  atomic.Bool // its end was requested
	// op is held while the pod is started or removed.
	op      chan struct{}
	readers readers

	mu   sync.Mutex
	rec  Record
	p    *pod.Pod
	done chan struct{} // closed when the supervision has ended
	err  error         // why it ended before the pod
	gone bool          // removed
	kept bool          // its end was saved
	// freed: the runtime has no resources of an ended run.
	freed bool
}

// identity is the pod as it was added. It never changes.
type identity struct{ original *corev1.Pod }

// Original returns the pod as it was added. The caller must not change it.
func (i identity) Original() *corev1.Pod { return i.original }

// Name returns the pod's name.
func (i identity) Name() string { return i.original.Name }

// UID returns the pod's UID.
func (i identity) UID() types.UID { return i.original.UID }

// Key returns the pod's namespace/name.
func (i identity) Key() string { return i.original.Namespace + "/" + i.original.Name }

// newPod makes the pod of a record. It returns a pod even with an error.
func (m *Manager) newPod(rec Record, failFast bool) (*Pod, error) {
	p := &Pod{
		m: m, dir: filepath.Join(m.o.Dir, string(rec.Pod.UID)), identity: identity{rec.Pod}, rec: rec, done: make(chan struct{}),
		objects: &volume.Set{}, op: make(chan struct{}, 1),
	}
	p.door = m.o.Door(p)
	var err error
	if p.p, err = p.prepare(rec, failFast); err != nil {
		return p, err
	}
	var lost error
	if p.events, lost = events.Open(filepath.Join(p.dir, eventsFile), &m.news); lost != nil {
		m.o.Logger.Warn("a pod's events could not be read back", "pod", p.Key(), "error", lost)
	}
	if rec.Ended != nil {
		p.door.Release()
		p.kept = true
		close(p.done)
	}
	return p, nil
}

// prepare makes the supervised pod, for the first run or another.
func (p *Pod) prepare(rec Record, failFast bool) (*pod.Pod, error) {
	for _, dir := range []string{p.dir, filepath.Join(p.dir, logsDir), filepath.Join(p.dir, messagesDir)} {
		if err := dirs.Ensure(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := p.readObjects(); err != nil {
		return nil, err
	}
	spec := rec.beforeResize()
	o := pod.Options{
		Options: config.Options{
			Pod:        spec,
			LogDir:     filepath.Join(p.dir, logsDir),
			MessageDir: filepath.Join(p.dir, messagesDir),
			HostsFile:  filepath.Join(p.dir, "etc-hosts"),
			VolumeDir:  filepath.Join(p.m.o.VolumeDir, string(rec.Pod.UID)),
			Objects:    p.objects,
			Network:    rec.Network,
			Template:   rec.Template,
			Warm:       rec.Warm,
			Accel:      rec.Accel,
			Size:       rec.Size,
			Ports:      rec.Ports,
		},
		Watch:  p.m.watch,
		Last:   notesOf(p).lastVerdicts(spec),
		Before: notesOf(p).lastConditions(rec.Since),
		// Readers do not delay a pod that must end.
		Unread:   func(path string) bool { return !p.ending.Load() && p.readers.unread(path) },
		Earlier:  rec.Earlier,
		FailFast: failFast,
		Event:    p.event,
		Logger:   p.m.o.Logger,

		Published: p.notifyChanged,
	}
	p.m.waits(p, rec, &o)
	if err := p.door.Configure(&o); err != nil {
		p.door.Release()
		return nil, err
	}
	supervised, err := pod.New(o)
	if err != nil {
		p.door.Release()
		return nil, errclass.With(errdefs.ErrInvalidArgument, err)
	}
	if rec.Before != nil {
		supervised.Update(rec.spec(), nil) // the unfinished resize of an earlier manager
	}
	return supervised, nil
}

func (p *Pod) event(ev pod.Event) {
	p.door.Event(ev)
	if err := p.events.Add(ev); err != nil {
		p.m.o.Logger.Warn("cannot save an event of a pod", "pod", p.Key(), "error", err)
	}
	if ev.Reason == "Started" && ev.Container != "" {
		if err := logs.Prune(filepath.Join(p.dir, logsDir, ev.Container)); err != nil {
			p.m.o.Logger.Warn("cannot remove old logs of a pod", "pod", p.Key(), "error", err)
		}
	}
}

// notifyChanged reports that the pod's status has changed, or its run has ended.
func (p *Pod) notifyChanged() {
	if p.m.o.Changed != nil {
		p.m.o.Changed(p)
	}
}

// Door returns the result of Options.Door for the pod.
func (p *Pod) Door() Door { return p.door }

// Dir returns the pod's own directory.
func (p *Pod) Dir() string { return p.dir }

// Events returns the pod's events.
func (p *Pod) Events() *events.Log { return p.events }

// supervised returns the pod of the current run.
func (p *Pod) supervised() *pod.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p
}

// Sandbox returns the CRI id of the pod's sandbox, empty before it exists.
func (p *Pod) Sandbox() string { return p.supervised().Sandbox() }

// Container returns the CRI id of the newest container with that name.
func (p *Pod) Container(name string) (id string, found bool) { return p.supervised().Container(name) }

// KeepTrying makes the pod retry failures of its start, because no client waits for it any more.
func (p *Pod) KeepTrying() { p.supervised().KeepTrying() }

// Changed makes the pod compute its status again from its door's options.
func (p *Pod) Changed() { p.supervised().Changed() }

// Status returns the pod's status, or the stored one if it ended under an earlier manager.
func (p *Pod) Status() corev1.PodStatus {
	status, _ := p.Watch()
	return status
}

// Watch returns the status and a channel that is closed at its next change. The status of an ended pod does not change.
func (p *Pod) Watch() (corev1.PodStatus, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, changed := p.p.Watch()
	if p.rec.Ended != nil {
		status = *p.rec.Ended.DeepCopy()
	}
	p.rec.Eviction.over(&status, p.rec.Ended != nil)
	return status, changed
}

// Observed reports whether Status is reliable. Before the runtime has answered, an adopted pod looks like a new one.
// Options.Changed is called when Observed becomes true.
func (p *Pod) Observed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.p.Observed():
		return true
	case <-p.done:
		return true
	default:
		return false
	}
}

// Ended returns a channel that is closed when the pod's current run, or its supervision, has ended.
func (p *Pod) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// HasEnded reports whether Ended is closed.
func (p *Pod) HasEnded() bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

// Ending reports whether the pod must end.
func (p *Pod) Ending() bool { return p.ending.Load() }

// Stopped reports whether a stop was requested.
func (p *Pod) Stopped() bool { return p.record().Stopping }

// Removed reports whether the pod was removed.
func (p *Pod) Removed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// Err returns why the pod's supervision ended, nil while it runs or after the pod's end.
func (p *Pod) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
