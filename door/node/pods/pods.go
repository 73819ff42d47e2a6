// Package pods runs the pods of a node: the pods that an API server has bound to it, and the static pods of a
// directory. The packages below do the work. This one connects them.
package pods

import (
	"context"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/door/node/events"
	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/door/node/pods/internal/runner"
	"github.com/bulkhead-project/bulkhead/door/node/pods/internal/status"
)

// Options configure Pods. Client is nil without an API server. All others but Manifests are required.
type Options struct {
	Client kubernetes.Interface
	// Name is the name of the node. Node returns the Node as the API server has it, or nil.
	Name string
	Node func() *corev1.Node
	// Manifests is the directory of static pods; empty means none.
	Manifests string
	Events    *events.Events
	Logger    *slog.Logger
}

// Host configures how pods run. Open sets Node, Resources, Pod, Changed, Event and Logger.
type Host = runner.Options

// Admission decides which pods the node accepts, counts their resources, and makes room for critical pods.
type Admission interface {
	control.Admission
	runner.Resources
	// AddRunning counts a running pod without a decision.
	AddRunning(*corev1.Pod)
	// OnFreed sets the function that is called when a pod has released something.
	OnFreed(func())
	// Preempt is control.Options.Preempt.
	Preempt(pod *corev1.Pod, reason string) (end func(context.Context), again bool)
}

// Pods are a node's pods. It is safe for concurrent use. Before Open, only Wake and RetryPending may be called.
type Pods struct {
	*runner.Runner // nil before Open

	o      Options
	static *static
	// The pods of an API server, or nil without one. bound is nil before Open.
	cache  *control.Cache
	status *status.Reporter
	bound  *control.Controller
	wakes  control.Queue
}

// New returns Pods that do not run yet. The caller calls Open.
func New(o Options) (p *Pods, err error) {
	p = &Pods{o: o, wakes: control.NewQueue()}
	if o.Client != nil {
		if p.cache, err = control.NewCache(o.Client, o.Name); err != nil {
			return nil, err
		}
		p.status = status.New(status.Options{Client: o.Client, Pod: p.cache.Get, Status: p.statusOf, Logger: o.Logger})
	}
	p.static, err = newStatic(p)
	return p, err
}

// Open takes over the pods that an earlier process left. The caller calls Run once, and Close.
func (p *Pods) Open(ctx context.Context, h Host, admits Admission) (err error) {
	h.Node, h.Resources, h.Pod, h.Changed, h.Event, h.Logger = p.o.Name, admits, p.get, p.changed, p.o.Events.Pod, p.o.Logger
	if p.Runner, err = runner.Open(ctx, h); err != nil {
		return err
	}
	p.Reserve(admits.AddRunning)
	of := control.Options{Admission: admits, Preempt: admits.Preempt, Events: p.o.Events.Recorder, Logger: p.o.Logger}
	if p.cache != nil {
		bound := of
		bound.Source, bound.Runner, bound.Reporter, bound.Queue = p.cache, p.Bound(), p.status, p.wakes
		p.bound, err = control.New(bound)
	}
	if err == nil {
		err = p.static.open(of)
	}
	admits.OnFreed(p.RetryPending)
	if err != nil {
		p.Close()
	}
	return err
}

// Run works until ctx ends or the directory of static pods cannot be watched. It calls read once that directory has
// been read, if there is one.
func (p *Pods) Run(ctx context.Context, read func()) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	if p.cache != nil {
		all.Go(func() { p.cache.RunWithContext(ctx) })
		all.Go(func() { p.status.Run(ctx) })
		all.Go(func() { p.bound.Run(ctx) })
	}
	return p.static.run(ctx, read)
}

// Wake reconciles a pod soon. Without an API server, its pods of an earlier process are static pods without a file.
func (p *Pods) Wake(uid types.UID) {
	if control.Static(uid) || p.cache == nil {
		p.static.wakes.Add(uid)
	} else {
		p.wakes.Add(uid)
	}
}

// RetryPending retries the static pods that wait for room on the node.
func (p *Pods) RetryPending() { p.static.retryPending() }

// Report reports the status of a pod to the API server, if there is one and it has the pod.
func (p *Pods) Report(ctx context.Context, uid types.UID) error {
	now := p.get(uid)
	if now == nil {
		return nil
	}
	return p.status.Report(ctx, now)
}

// get returns a pod as the API server has it, or nil.
func (p *Pods) get(uid types.UID) *corev1.Pod {
	if p.cache == nil {
		return nil
	}
	return p.cache.Get(uid)
}

// changed is called for each pod with a new status. A pod that has ended is reconciled, which releases its resources,
// whether or not the API server has the status.
func (p *Pods) changed(uid types.UID, ended bool) {
	if control.Static(uid) || p.status == nil {
		p.static.updateMirror(uid)
	} else {
		p.status.Changed(uid)
	}
	if ended {
		p.Wake(uid)
	}
}

// statusOf returns the status of a pod of the API server. A mirror has the status of the static pod that it shows.
func (p *Pods) statusOf(uid types.UID) (corev1.PodStatus, bool) {
	if own := p.cache.Get(uid); own != nil {
		if shown := control.MirrorOf(own); shown != "" {
			return p.static.status(shown)
		}
	}
	return p.Status(uid)
}
