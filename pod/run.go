package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/logs"
)

// run is the state of one Run. Only its goroutine uses it. Long work (pulls, the sandbox, stopping) runs beside it and
// sends a function to done, which is called on that goroutine.
type run struct {
	p    *Pod
	o    *Options
	pod  *corev1.Pod
	done chan func()
	work sync.WaitGroup

	name           string // the runtime's name
	began          time.Time
	turn           turn
	probes         *probes
	sandbox        *runtimeapi.PodSandboxStatus // newest; nil before there is one
	attempt        uint32                       // of the next sandbox
	busy           bool                         // a call about the sandbox is running
	making         context.CancelFunc           // cancels the creation of the sandbox; nil when none is running
	sandboxErr     error                        // why the last creation failed
	sandboxTry     backoff.Backoff
	sandboxAt      time.Time // when it failed
	containers     []*container
	starting       *starting                              // nil when no container is being started
	adopted        int                                    // how many of p.added are among them
	old            []string                               // ids of instances that appear in the status no longer
	sweeping       bool                                   // a sweep is running
	stoppedSandbox string                                 // the dead sandbox that was stopped
	exits          map[string]*runtimeapi.ContainerStatus // by id; an exit is final
	words          map[string]string                      // last words of containers that have ended, by id

	stopping *stopRequest       // the request that is being carried out
	stops    int                // running calls for it
	hurry    context.CancelFunc // cancels the running one for a shorter one
	expired  bool               // its active deadline has passed
	ended    bool
	fatal    error // why FailFast ends the pod
	due      time.Time
	last     corev1.PodStatus // the status since the first observation
	looked   bool             // the pod has been observed

	changed  <-chan struct{}    // closed when the objects have changed
	mounted  bool               // the volumes of files are written
	writing  context.CancelFunc // cancels the running write; nil when none is running
	stale    bool               // the objects have changed since the last write
	mounting *failure           // why the write failed
	mountTry backoff.Backoff
	claims   claims
	images   map[string]*imageState // of image volumes, by volume name
	resize   resizing
	asked    int // the value of Pod.asked that has been applied
}

// failure is the reason that a container waits.
type failure struct {
	reason, message string
	at              time.Time
}

func newRun(p *Pod) *run {
	// Use a copy: its resources change while others read the given pod.
	o := p.options
	o.Pod = p.pod.DeepCopy()
	if o.Claims != nil {
		o.Claimed = o.Claims.Places()
	}
	r := &run{
		p: p, o: &o, pod: o.Pod, name: "bulkhead",
		began: time.Now(),
		done:  make(chan func()),
		exits: make(map[string]*runtimeapi.ContainerStatus),
	}
	r.turn.awaited, r.last.Conditions = o.Turn != nil, o.Before
	r.probes = newProbes(r)
	r.containers = containersOf(r.pod)
	r.resize.size, r.resize.actuated = config.SandboxResources(r.pod), r.pod.Generation
	return r
}

// retryDelay is the pause before a failed observation is retried.
const retryDelay = time.Second

func (r *run) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.work.Wait()
	defer cancel()
	if version, err := r.o.Runtime.Version(ctx, ""); err == nil && version.GetRuntimeName() != "" {
		r.name = version.GetRuntimeName()
	}
	events, leave, err := r.subscribe(ctx)
	if err != nil {
		return err
	}
	defer leave()
	rotator := &logs.Rotator{Runtime: r.o.Runtime, Current: r.p.containers, Unread: r.o.Unread, Logger: r.p.log}
	r.work.Go(func() { rotator.Run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	r.changed = r.o.AllObjects().Changed()
	for {
		r.due = time.Time{}
		r.adopt()
		if err := r.observe(ctx); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			r.p.log.Warn("cannot observe the pod", "error", err)
			r.after(retryDelay)
		} else {
			r.step(ctx)
			r.probes.sync(ctx)
			r.looked = true
		}
		r.publish()
		if r.looked {
			r.p.observeOnce.Do(r.p.announceObserved)
		}
		if r.ended {
			return errors.Join(r.fatal, r.unmount(ctx))
		}
		if !r.due.IsZero() {
			timer.Reset(time.Until(r.due))
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-events:
		case call := <-r.done:
			call()
		case <-r.p.wake:
		case <-r.changed:
			r.refresh()
		case <-r.claims.changed:
			r.claims.failure, r.claims.changed = nil, nil
		case <-timer.C:
		}
	}
}

// subscribe subscribes to the pod's container events. It retries while the runtime does not answer, because the pod's
// VM may run. A pod that fails fast has no VM yet, so the first error is returned.
func (r *run) subscribe(ctx context.Context) (events <-chan struct{}, leave func(), err error) {
	for {
		events, leave, err = r.o.Watch.Subscribe(ctx, r.pod.UID)
		if err == nil {
			return events, leave, nil
		}
		err = fmt.Errorf("pod %s: subscribe to container events: %w", r.pod.Name, err)
		if ctx.Err() != nil || r.p.failsFast() {
			return nil, nil, err
		}
		r.p.log.Warn("cannot subscribe to container events, retrying", "error", err)
		timer := time.NewTimer(retryDelay)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, err
		}
	}
}

// after wakes the loop after d at the latest.
func (r *run) after(d time.Duration) { r.at(time.Now().Add(d)) }

func (r *run) at(when time.Time) {
	if r.due.IsZero() || when.Before(r.due) {
		r.due = when
	}
}

// beside runs work on a goroutine of its own, and the function that it returns on the loop's goroutine.
func (r *run) beside(ctx context.Context, work func() func()) {
	r.work.Go(func() {
		r.inLoop(ctx, work())
	})
}

// inLoop runs then on the loop's goroutine. Other goroutines call it.
func (r *run) inLoop(ctx context.Context, then func()) {
	select {
	case r.done <- then:
	case <-ctx.Done():
	}
}
