package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/volume"
)

const recordFile = "pod.json"

// record is what survives of a pod on disk, mode 0600: environments are in it.
type record struct {
	Pod        *corev1.Pod               `json:"pod"`
	Network    string                    `json:"network,omitempty"`
	Template   string                    `json:"template,omitempty"`
	Accel      string                    `json:"accel,omitempty"`
	Ports      []*runtimeapi.PortMapping `json:"ports,omitempty"`
	Foreground bool                      `json:"foreground,omitempty"` // dies with its command
	Stopping   bool                      `json:"stopping,omitempty"`   // somebody wants its end
	Remove     bool                      `json:"remove,omitempty"`     // when it has ended
	Ended      *corev1.PodStatus         `json:"ended,omitempty"`
	// Ephemeral are the containers that were added to the running pod.
	Ephemeral []corev1.EphemeralContainer `json:"ephemeral,omitempty"`
	// Resources are what containers were resized to, by name, in so many steps.
	Resources  map[string]corev1.ResourceRequirements `json:"resources,omitempty"`
	Generation int64                                  `json:"generation,omitempty"`

	objects objects      // those that a new pod is given
	getenv  image.Getenv // of the command that ran it last; nil: an earlier engine's
}

// entry is one pod with its supervision.
type entry struct {
	r   *registry
	dir string
	log *outbox // what its events told, for the run that follows it
	// events are kept beside the record.
	events *eventLog
	// unhealthy is what each container's probes said last, for the events of Run.
	unhealthy map[string]string
	ending    atomic.Bool // somebody wants its end
	objects   *volume.Set
	// One of start and remove at a time holds the one place.
	op chan struct{}

	mu   sync.Mutex
	rec  record
	p    *pod.Pod
	done chan struct{} // closed when supervision has ended
	err  error         // why, if not by the pod's end
	gone bool          // removed
}

func newEntry(r *registry, rec record, failFast bool) (*entry, error) {
	e := &entry{r: r, dir: filepath.Join(r.dir, string(rec.Pod.UID)), rec: rec, log: newOutbox(), objects: &volume.Set{}, op: make(chan struct{}, 1)}
	p, err := e.newPod(failFast)
	var lost error
	if e.events, lost = openEvents(filepath.Join(e.dir, eventsFile), &r.news); lost != nil {
		r.s.log.Warn("a pod's events could not be read back", "pod", e.key(), "error", lost)
	}
	e.p, e.done = p, make(chan struct{})
	if rec.Ended != nil {
		close(e.done)
	}
	return e, err
}

// newPod makes what is supervised, for the first run or another.
func (e *entry) newPod(failFast bool) (*pod.Pod, error) {
	for _, dir := range []string{e.dir, filepath.Join(e.dir, "logs"), filepath.Join(e.dir, "messages")} {
		if err := dirs.Ensure(dir, 0o700); err != nil {
			return nil, err
		}
	}
	if err := e.openObjects(); err != nil {
		return nil, err
	}
	engine, spec := e.r.s.engine, e.rec.spec()
	node, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("ask for the machine's name: %w", err)
	}
	return pod.New(pod.Options{
		Options: config.Options{
			Pod: spec, Objects: e.objects,
			LogDir: filepath.Join(e.dir, "logs"), MessageDir: filepath.Join(e.dir, "messages"),
			VolumeDir: filepath.Join(volumesDir(e.r.s.roots), string(e.rec.Pod.UID)),
			HostsFile: filepath.Join(e.dir, "etc-hosts"), SeccompDir: e.r.s.roots.Seccomp(), DNS: e.dns,
			Network: e.rec.Network, Template: e.rec.Template, Accel: e.rec.Accel,
			Ports: e.rec.Ports, HostIP: "127.0.0.1", NodeName: node,
		},
		Runtime: engine, Images: puller{engine, e.images, e.log}, Last: e.lastVerdicts(spec), FailFast: failFast,
		Dial: engine.DialPort, Pauses: engine.PodPauses, Resume: engine.ResumePodSandbox, Allocatable: e.allocatable,
		Event: e.event, Logger: e.r.s.log,
	})
}

// allocatable is what a container has that sets no limit: the pod's machine.
func (e *entry) allocatable(ctx context.Context, sandbox string) (corev1.ResourceList, error) {
	facts, err := e.r.s.engine.PodFacts(ctx, sandbox)
	if err != nil {
		return nil, err
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(int64(facts.VCPUs), resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(facts.MemoryMiB<<20, resource.BinarySI),
	}, nil
}

// dns is the resolver configuration that the pod's network has.
func (e *entry) dns() *runtimeapi.DNSConfig {
	dns := network.Resolver(network.Kind(e.rec.Network))
	return &runtimeapi.DNSConfig{Servers: dns.Servers, Searches: dns.Searches, Options: dns.Options}
}

func (e *entry) event(ev pod.Event) {
	if ev.Warning && ev.Reason != "BackOff" && !e.expected(ev) {
		e.log.put(api.Message{Notice: ev.Reason + ": " + ev.Message})
	}
	if err := e.events.add(ev); err != nil {
		e.r.s.log.Warn("an event of a pod is not kept", "pod", e.key(), "error", err)
	}
	if ev.Reason == "Started" && ev.Container != "" {
		if err := dropLogs(filepath.Join(e.dir, "logs", ev.Container)); err != nil {
			e.r.s.log.Warn("old logs of a pod are left", "pod", e.key(), "error", err)
		}
	}
}

// expected tells whether ev is what a container's probes said last as well, or what
// they say of one that is being ended.
func (e *entry) expected(ev pod.Event) bool {
	if ev.Reason != "Unhealthy" && ev.Reason != "ProbeWarning" {
		return false
	}
	if e.ending.Load() {
		return true
	}
	last := e.unhealthy[ev.Container]
	if e.unhealthy == nil {
		e.unhealthy = map[string]string{}
	}
	e.unhealthy[ev.Container] = ev.Message
	return last == ev.Message
}

func (e *entry) key() string { return e.rec.Pod.Namespace + "/" + e.rec.Pod.Name }

func (e *entry) pod() *pod.Pod {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.p
}

func (e *entry) ended() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done
}

func (e *entry) hasEnded() bool {
	select {
	case <-e.ended():
		return true
	default:
		return false
	}
}

// status is the pod's, the stored one when it ended under an earlier
// engine.
func (e *entry) status() corev1.PodStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rec.Ended != nil {
		return *e.rec.Ended
	}
	return e.p.Status()
}

// save writes the record; the caller holds the lock or is alone with e.
func (e *entry) save() error {
	return atomicfile.WriteJSON(filepath.Join(e.dir, recordFile), e.rec, 0o600, atomicfile.Durable)
}

// supervise runs the pod in a goroutine of the registry's.
func (e *entry) supervise() {
	e.mu.Lock()
	p, done := e.p, e.done
	e.mu.Unlock()
	e.r.s.idle.enter()
	e.r.wg.Go(func() {
		defer e.r.s.idle.leave()
		stop := e.keepVerdicts(p)
		err := p.Run(e.r.ctx)
		stop()
		e.mu.Lock()
		if e.err = err; e.r.ctx.Err() == nil {
			status := p.Status()
			e.rec.Ended = &status
			e.err = errors.Join(err, e.save())
			fault.Point("pod.ended")
		}
		if e.err != nil && e.r.ctx.Err() == nil {
			e.r.s.log.Warn("a pod's supervision ended", "pod", e.key(), "error", e.err)
		}
		remove := e.rec.Remove && !e.rec.Foreground && e.r.ctx.Err() == nil
		e.mu.Unlock()
		if remove {
			defer e.r.orphans.begin(always)()
		}
		close(done)
		if remove {
			if err := e.remove(e.r.ctx, true); err != nil {
				e.r.s.log.Warn("a pod could not be removed", "pod", e.key(), "error", err)
			}
		}
	})
}

// unfollow says that nobody sees to the pod any more who would remove it when it
// has ended, however long that takes: from now on that is done where it ends. The
// stop that follows writes it down.
func (e *entry) unfollow(remove bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rec.Foreground = false
	e.rec.Remove = e.rec.Remove || remove
}

// orphaned ends a pod whose foreground command is gone.
func (e *entry) orphaned() {
	e.unfollow(false)
	ctx, cancel := context.WithTimeout(e.r.ctx, endTimeout(e.rec.Pod, nil))
	defer cancel()
	err := e.stop(ctx, nil)
	e.mu.Lock()
	remove := e.rec.Remove
	e.mu.Unlock()
	if err == nil && remove {
		err = e.remove(ctx, true)
	}
	if err != nil && e.r.ctx.Err() == nil {
		e.r.s.log.Warn("a pod outlives its command", "pod", e.key(), "error", err)
	}
}

// endTimeout bounds the end of a pod: its grace, or the one asked for, and the
// ending itself.
func endTimeout(p *corev1.Pod, asked *int64) time.Duration {
	grace := int64(30)
	if p.Spec.TerminationGracePeriodSeconds != nil {
		grace = *p.Spec.TerminationGracePeriodSeconds
	}
	if asked != nil {
		grace = max(grace, *asked)
	}
	return time.Duration(grace)*time.Second + time.Minute
}

// stop ends the pod and returns when it has ended. It succeeds for one that has.
// The next engine goes on with it if this one ends before.
func (e *entry) stop(ctx context.Context, grace *int64) error {
	if e.hasEnded() {
		return nil
	}
	e.mu.Lock()
	e.rec.Stopping = true
	e.ending.Store(true)
	if err := e.save(); err != nil {
		// The pod is to end all the more, on a full disk above all.
		e.r.s.log.Warn("that a pod is to end could not be written down", "pod", e.key(), "error", err)
	}
	e.mu.Unlock()
	d := time.Duration(-1)
	if grace != nil {
		d = time.Duration(*grace) * time.Second
	}
	if err := e.pod().Stop(ctx, d); err != nil {
		return fmt.Errorf("stop pod %s: %w", e.key(), err)
	}
	select {
	case <-e.ended():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("stop pod %s: %w", e.key(), ctx.Err())
	}
}

// take makes the caller the only one who starts or removes the pod, until done.
// gone says that it was removed before.
func (e *entry) take(ctx context.Context) (done func(), gone bool, err error) {
	select {
	case e.op <- struct{}{}:
	case <-ctx.Done():
		return nil, false, fmt.Errorf("pod %s is being started or removed: %w", e.key(), ctx.Err())
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return func() { <-e.op }, e.gone, nil
}

// remove deletes an ended pod and all it left; with force a running one. It
// succeeds for one that is removed already.
func (e *entry) remove(ctx context.Context, force bool) error {
	done, gone, err := e.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	if gone {
		return nil
	}
	if !e.hasEnded() {
		if !force {
			return class(api.ErrConflict, fmt.Errorf("pod %s runs: stop it first, or give --force", e.key()))
		}
		if err := e.stop(ctx, new(int64)); err != nil {
			return err
		}
	}
	if err := e.pod().Delete(ctx); err != nil {
		return fmt.Errorf("remove pod %s: %w", e.key(), err)
	}
	return e.r.forget(e)
}

// start runs an ended pod again, with nothing left of its last run.
func (e *entry) start(ctx context.Context, getenv image.Getenv) error {
	done, gone, err := e.take(ctx)
	if err != nil {
		return err
	}
	defer done()
	if gone {
		return fmt.Errorf("pod %s: %w", e.key(), api.ErrNotFound)
	}
	if !e.hasEnded() {
		return class(api.ErrConflict, fmt.Errorf("pod %s runs already", e.key()))
	}
	if cause, yes := e.rec.damaged(); yes {
		return class(api.ErrConflict, fmt.Errorf("pod %s: %s", e.key(), cause))
	}
	if err := e.pod().Delete(ctx); err != nil {
		return fmt.Errorf("start pod %s: remove what its last run left: %w", e.key(), err)
	}
	e.mu.Lock()
	last := e.rec
	e.rec.Ephemeral = nil // they were the last run's
	e.mu.Unlock()
	e.reads(getenv)
	p, err := e.newPod(true)
	if err != nil {
		return fmt.Errorf("start pod %s: %w", e.key(), err)
	}
	e.mu.Lock()
	e.rec.Ended, e.rec.Foreground, e.rec.Stopping = nil, false, false
	e.ending.Store(false)
	if err = e.save(); err != nil {
		e.rec = last
	} else {
		e.p, e.done, e.err = p, make(chan struct{}), nil
	}
	e.mu.Unlock()
	if err != nil {
		return fmt.Errorf("start pod %s: %w", e.key(), err)
	}
	e.supervise()
	return nil
}
