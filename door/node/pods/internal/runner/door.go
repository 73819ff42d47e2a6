package runner

import (
	"context"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/probe"
	"github.com/bulkhead-project/bulkhead/volume"
)

// door connects a pod to the node.
type door struct {
	r      *Runner
	p      *manager.Pod
	claims volume.Claims // nil if the node has none

	mu      sync.Mutex
	objects volume.Objects // of the pod; set from Configure to Release
	release func()         // releases objects; nil if they are not held

	resize sync.Mutex // held while the pod's requested or reserved resources may change
}

func (r *Runner) door(p *manager.Pod) manager.Door {
	d := &door{r: r, p: p}
	if r.o.Claims != nil {
		d.claims = r.o.Claims(p.Original(), p.Dir())
	}
	return d
}

// Configure implements manager.Door.
func (d *door) Configure(o *pod.Options) error {
	node := &d.r.o
	o.Runtime, o.Images, o.Arrival = node.Backend.Runtime, d.r.images, d.r.images.Wait
	o.Dial, o.Pauses, o.Resume, o.Allocatable = node.Backend.Dial, node.Backend.Pauses, node.Backend.Resume, node.Backend.Allocatable
	o.SeccompDir, o.NodeName, o.HostIP, o.ClusterDomain = node.SeccompDir, node.Node, node.HostIP, node.ClusterDomain
	o.Objects, o.Claims, o.Places = d.watchObjects(), d.claims, node.Backend.Places
	o.FailFast, o.SoftStorage = false, true // a node evicts
	if node.Services != nil {
		o.Services = func(ctx context.Context) ([]*corev1.Service, error) { return node.Services(ctx, d.p.UID()) }
	}
	if node.Handler != nil && !control.Static(d.p.UID()) {
		o.Handler = func(ctx context.Context) (string, error) { return node.Handler(ctx, d.p.UID()) }
	}
	if node.DNS != nil {
		o.DNS = func() *runtimeapi.DNSConfig { return node.DNS(d.p.Original()) }
	}
	o.Conditions = d.conditions
	if node.Watch != nil {
		o.Probed = func(container string, kind probe.Kind, result probe.Result, took time.Duration) {
			node.Watch.Probed(d.p.Original(), container, kind, result, took)
		}
	}
	return nil
}

// watchObjects starts watching the objects that the pod refers to.
func (d *door) watchObjects() volume.Objects {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.release == nil {
		d.objects, d.release = d.r.o.Objects.Of(d.p.Original())
	}
	return d.objects
}

// Release implements manager.Door. It stops the watches of a pod that does not run.
func (d *door) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.release != nil {
		d.release()
	}
	d.objects, d.release = nil, nil
}

// conditions returns the conditions that other clients set for the pod's readiness gates.
func (d *door) conditions() (others []corev1.PodCondition) {
	gates := d.p.Original().Spec.ReadinessGates
	if len(gates) == 0 {
		return nil
	}
	now := d.r.o.Pod(d.p.UID())
	if now == nil {
		return nil
	}
	for _, c := range now.Status.Conditions {
		if slices.ContainsFunc(gates, func(g corev1.PodReadinessGate) bool { return g.ConditionType == c.Type }) {
			others = append(others, c)
		}
	}
	return others
}

// Event implements manager.Door.
func (d *door) Event(e pod.Event) {
	if d.r.o.Event != nil {
		d.r.o.Event(d.p.Original(), e)
	}
	if d.r.o.Watch != nil {
		d.r.o.Watch.Event(d.p.Original(), e)
	}
}
