package pod

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/launch"
	"github.com/bulkhead-project/bulkhead/pod/logs"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/volume"
)

// run is one Run of a pod. Only its goroutine uses it.
type run struct {
	*core
	stopper
	sandboxes
	probes  *probes
	exits   map[string]*runtimeapi.ContainerStatus // by id; an exit is final
	changed <-chan struct{}                        // closed when the objects have changed
	adopted int                                    // how many of p.added are among the containers
	asked   int                                    // the value of Pod.asked that has been applied
}

// core is the part of a run that its parts share.
type core struct {
	view
	loop
	p *Pod
}

// loop runs long work (pulls, the sandbox, stopping) beside the goroutine of a run. The work sends a function to done,
// which is called on that goroutine.
type loop struct {
	done   chan func()
	work   sync.WaitGroup
	due    time.Time
	giveUp map[plan.Verb]context.CancelCauseFunc // give up the last tries
}

func newRun(p *Pod) *run {
	// Use a copy: its resources change while others read the given pod.
	o := p.options
	o.Pod = p.pod.DeepCopy()
	if o.Claims != nil {
		o.Claimed = o.Claims.Places()
	}
	c := &core{
		p:    p,
		loop: loop{done: make(chan func()), giveUp: make(map[plan.Verb]context.CancelCauseFunc)},
		view: view{o: &o, name: "bulkhead", last: corev1.PodStatus{Conditions: o.Before}, State: plan.State{
			Pod: o.Pod, Began: time.Now(), Deadline: o.Deadline, Containers: plan.Containers(&o.Pod.Spec),
			Turn:   plan.Turn{Awaited: o.Turn != nil},
			Files:  plan.Files{Needed: volume.Needed(p.pod)},
			Images: make(map[string]*plan.Image),
			Resize: plan.Resize{Size: config.SandboxResources(o.Pod), Actuated: o.Pod.Generation},
		}},
	}
	for _, volume := range o.Pod.Spec.Volumes {
		c.Images[volume.Name] = &plan.Image{}
	}
	r := &run{core: c, sandboxes: sandboxes{core: c}}
	r.stopper = stopper{core: c, hooks: make(map[*container]context.CancelFunc), preStops: make(map[*container]*preStop)}
	r.unclaimed()
	r.probes = &probes{r: r, watched: make(map[*container]*watched)}
	return r
}

// retryDelay is the pause before a failed observation is retried.
const retryDelay = time.Second

// readName reads the name of the runtime, which ids of containers begin with in the status.
func (r *run) readName(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, observeDeadline)
	defer cancel()
	if version, err := r.o.Runtime.Version(ctx, ""); err != nil {
		r.p.log.Warn("cannot read the runtime's version", "error", err)
	} else if name := version.GetRuntimeName(); name != "" {
		r.name = name
	}
}

func (r *run) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer r.work.Wait()
	defer cancel()
	r.readName(ctx)
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
			r.at(time.Now().Add(retryDelay))
		} else {
			r.step(ctx)
			r.probes.sync(ctx)
			r.looked = true
		}
		r.publish()
		if r.looked {
			r.p.observeOnce.Do(r.p.announceObserved)
		}
		if r.Ended {
			return errors.Join(r.Fatal, r.unmount(ctx))
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
		case <-r.claims:
			r.Claims.Retry, r.claims = time.Time{}, nil
		case <-timer.C:
		}
	}
}

// subscribe subscribes to the pod's container events. It retries while the runtime does not answer, because the pod's
// VM may run. A pod that fails fast has no VM yet, so the first error is returned.
func (r *run) subscribe(ctx context.Context) (events <-chan struct{}, leave func(), err error) {
	for {
		events, leave, err = r.o.Watch.Subscribe(ctx, r.Pod.UID)
		if err == nil {
			return events, leave, nil
		}
		err = fmt.Errorf("pod %s: subscribe to container events: %w", r.Pod.Name, err)
		if ctx.Err() != nil || r.p.failsFast() {
			return nil, nil, err
		}
		r.p.log.Warn("cannot subscribe to container events, retrying", "error", err)
		retry.Sleep(ctx, retryDelay, nil)
	}
}

// at wakes the loop at that time at the latest.
func (r *loop) at(when time.Time) {
	if r.due.IsZero() || when.Before(r.due) {
		r.due = when
	}
}

// beside runs work on a goroutine of its own, and the function that it returns on the loop's goroutine.
func (r *loop) beside(ctx context.Context, work func() func()) {
	r.work.Go(func() {
		r.inLoop(ctx, work())
	})
}

// try runs work for a step of the pod's start beside the loop, with a deadline, and then done on the loop's
// goroutine. given: work ended because the pod gave up the step.
func (r *loop) try(ctx context.Context, step plan.Verb, limit time.Duration, work func(context.Context) error,
	done func(err error, given bool)) {
	cancelled, giveUp := context.WithCancelCause(ctx)
	limited, cancel := context.WithTimeout(cancelled, limit)
	r.giveUp[step] = giveUp
	r.beside(ctx, func() func() {
		err := work(limited)
		given := errors.Is(context.Cause(limited), launch.ErrGivenUp)
		cancel()
		giveUp(nil)
		return func() { done(err, given) }
	})
}

// inLoop runs then on the loop's goroutine. Other goroutines call it.
func (r *loop) inLoop(ctx context.Context, then func()) {
	select {
	case r.done <- then:
	case <-ctx.Done():
	}
}
