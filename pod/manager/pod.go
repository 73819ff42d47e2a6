package manager

import (
	"path/filepath"
	"sync"
	"sync/atomic"

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

// The files of a pod's directory, beside recordFile.
const (
	logsDir     = "logs"
	messagesDir = "messages"
	eventsFile  = "events.jsonl"
)

// Pod is one pod of a Manager, from its Add or its manager's Open until it is
// removed. It may be run more than once. Methods may be called at once.
type Pod struct {
	m       *Manager
	given   *corev1.Pod
	door    Door
	dir     string
	events  *events.Log
	objects *volume.Set
	ending  atomic.Bool // somebody wants its end
	// op is held by the one that starts or removes the pod.
	op chan struct{}

	mu   sync.Mutex
	rec  Record
	p    *pod.Pod
	done chan struct{} // closed when supervision has ended
	err  error         // why, if not by the pod's end
	gone bool          // removed
	kept bool          // its end is written down
	// freed: nothing of an ended run is left at the runtime.
	freed bool
	// readers are to miss nothing of the containers' output.
	readers map[*logs.Reader]bool
}

// newPod makes the pod of a record. The pod is not nil also with an error.
func (m *Manager) newPod(rec Record, failFast bool) (*Pod, error) {
	p := &Pod{
		m: m, dir: filepath.Join(m.o.Dir, string(rec.Pod.UID)), given: rec.Pod, rec: rec, done: make(chan struct{}),
		objects: &volume.Set{}, op: make(chan struct{}, 1), readers: map[*logs.Reader]bool{},
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

// prepare makes what is supervised, for the first run or another.
func (p *Pod) prepare(rec Record, failFast bool) (*pod.Pod, error) {
	for _, dir := range []string{p.dir, filepath.Join(p.dir, logsDir), filepath.Join(p.dir, messagesDir)} {
		if err := dirs.Ensure(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := p.readObjects(); err != nil {
		return nil, err
	}
	spec := rec.had()
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
		Watch:    p.m.watch,
		Last:     p.lastVerdicts(spec),
		Before:   p.lastConditions(rec.Since),
		Unread:   p.unread,
		Earlier:  rec.Earlier,
		FailFast: failFast,
		Event:    p.event,
		Logger:   p.m.o.Logger,

		Published: p.tell,
	}
	p.waits(rec, &o)
	if err := p.door.Configure(&o); err != nil {
		p.door.Release()
		return nil, err
	}
	supervised, err := pod.New(o)
	if err != nil {
		p.door.Release()
		return nil, errclass.With(ErrInvalid, err)
	}
	if rec.Before != nil {
		supervised.Update(rec.spec(), nil) // the resize that an earlier manager began
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

// tell says that the pod's status has changed, or its run has ended.
func (p *Pod) tell() {
	if p.m.o.Changed != nil {
		p.m.o.Changed(p)
	}
}

// Door is what Options.Door made for the pod.
func (p *Pod) Door() Door { return p.door }

// Dir is the pod's own directory.
func (p *Pod) Dir() string { return p.dir }

// Given is the pod as it was given. It must not be changed.
func (p *Pod) Given() *corev1.Pod { return p.given }

// Name is the pod's name.
func (p *Pod) Name() string { return p.given.Name }

// UID is the pod's UID.
func (p *Pod) UID() types.UID { return p.given.UID }

// Key is the pod's namespace/name.
func (p *Pod) Key() string { return p.given.Namespace + "/" + p.given.Name }

// Events are what happened to the pod.
func (p *Pod) Events() *events.Log { return p.events }

// supervised is the pod of the current run.
func (p *Pod) supervised() *pod.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p
}

// Sandbox is the CRI id of the pod's sandbox, empty before there is one.
func (p *Pod) Sandbox() string { return p.supervised().Sandbox() }

// Container is the CRI id of the newest container of that name.
func (p *Pod) Container(name string) (id string, found bool) { return p.supervised().Container(name) }

// KeepTrying says that nobody waits for the pod's start any more: what fails of it
// is tried again.
func (p *Pod) KeepTrying() { p.supervised().KeepTrying() }

// Changed has the pod's status made anew from what its door's options give.
func (p *Pod) Changed() { p.supervised().Changed() }

// Status is the pod's status; the stored one when it ended under an earlier manager.
func (p *Pod) Status() corev1.PodStatus {
	status, _ := p.Watch()
	return status
}

// Watch returns the status and a channel that is closed when it has changed; no
// status follows that of a pod that has ended.
func (p *Pod) Watch() (corev1.PodStatus, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	status, changed := p.p.Watch()
	if p.rec.Ended != nil {
		status = *p.rec.Ended.DeepCopy()
	}
	p.rec.Verdict.over(&status, p.rec.Ended != nil)
	return status, changed
}

// Observed tells whether Status is what is there of the pod: of one that was taken over it is that of a pod which
// begins until the runtime has answered. Options.Changed is called when it has.
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

// Ended is closed when the pod's current run has ended, or nobody supervises it any
// more.
func (p *Pod) Ended() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

// HasEnded tells whether Ended is closed.
func (p *Pod) HasEnded() bool {
	select {
	case <-p.Ended():
		return true
	default:
		return false
	}
}

// Ending tells whether somebody wants the pod's end.
func (p *Pod) Ending() bool { return p.ending.Load() }

// Stopped tells whether the pod's end was asked for.
func (p *Pod) Stopped() bool { return p.record().Stopping }

// Removed tells whether the pod was removed.
func (p *Pod) Removed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gone
}

// Err is why the pod was given up, nil for one that runs or has run.
func (p *Pod) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}
