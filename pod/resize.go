package pod

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/resize"
)

// ErrResize is matched by Resize's errors: what is asked for is not allowed.
var ErrResize = errors.New("cannot be resized")

// keepClass says what can be done, by the class that a pod has.
var keepClass = map[corev1.PodQOSClass]string{
	corev1.PodQOSBestEffort: "set limits at creation, in its file or with run's --memory and --cpus, and resize those",
	corev1.PodQOSBurstable:  "keep a request below its limit, or leave a limit out",
	corev1.PodQOSGuaranteed: "change the request and the limit equally",
}

// Resize gives a container of the pod other resources while it runs, where its
// resizePolicy says so by starting it anew. Of next only CPU and memory may be
// another than before, no limit and no request may go, and the pod's quality of
// service must stay: else the error matches ErrResize. What becomes of it is in
// the pod's status, once ObservedGeneration is the number that is returned: the
// conditions PodResizePending and PodResizeInProgress, and the containers'
// resources. It may be called by several at once, and at any time.
func (p *Pod) Resize(name string, next corev1.ResourceRequirements) (generation int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted, err := p.resized(name, next)
	if err != nil {
		return 0, err
	}
	p.wanted, p.refused = wanted, nil
	p.asked++
	p.Changed()
	return wanted.Generation, nil
}

// CanResize returns what Resize would, and does nothing.
func (p *Pod) CanResize(name string, next corev1.ResourceRequirements) (generation int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted, err := p.resized(name, next)
	if err != nil {
		return 0, err
	}
	return wanted.Generation, nil
}

// resized is the pod as Resize wants it. It is called with mu held.
func (p *Pod) resized(name string, next corev1.ResourceRequirements) (*corev1.Pod, error) {
	wanted := p.wanted
	if wanted == nil {
		wanted = p.pod
	}
	wanted = wanted.DeepCopy()
	container := resize.Container(&wanted.Spec, name)
	if container == nil {
		return nil, fmt.Errorf("pod %s: container %q %w: the pod has no such container or sidecar", p.pod.Name, name, ErrResize)
	}
	before := podspec.QOS(wanted)
	if err := resize.Check(container.Resources, next); err != nil {
		return nil, fmt.Errorf("pod %s: container %s %w: %w", p.pod.Name, name, ErrResize, err)
	}
	container.Resources = *next.DeepCopy()
	if after := podspec.QOS(wanted); after != before {
		return nil, fmt.Errorf("pod %s: container %s %w: the pod's QoS class would change from %s to %s: %s",
			p.pod.Name, name, ErrResize, before, after, keepClass[before])
	}
	wanted.Generation++
	return wanted, nil
}

// Spec is the pod as it is asked for: as it was given, and resized or updated since. The
// caller may keep it.
func (p *Pod) Spec() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted != nil {
		return p.wanted.DeepCopy()
	}
	return p.pod.DeepCopy()
}

// resizing is how far the pod's latest resize has come.
type resizing struct {
	busy     bool
	actuated int64                // the generation that all containers have; -1 is none
	pending  *podstatus.Condition // it cannot be had
	reverted bool                 // the runtime refused it; without that, what was granted before is still carried out
	progress *podstatus.Condition // it is being done; with a reason, the last attempt failed
	retry    time.Time
	size     *runtimeapi.LinuxContainerResources // of the sandbox, as last told
}

// resizeRetry is how soon a resize that failed is tried again.
const resizeRetry = 5 * time.Second

// change is what is to change of one of the pod's containers.
type change struct {
	resize.Change
	c *container
}

// changes are the running containers whose resources differ from what the
// runtime says that they have; a runtime that says nothing has no changes.
func (r *run) changes() []change {
	var out []change
	for _, c := range r.of(podspec.Sidecar, podspec.Regular) {
		have := c.newestResources()
		if !r.running(c) || have == nil || c.killing == c.newest.ID() {
			continue
		}
		if one, found := resize.Compare(c.spec, c.newest.ID(), have, config.Resources(r.pod, c.spec)); found {
			out = append(out, change{one, c})
		}
	}
	return out
}

// outgoing tells whether the newest instance is one that is ended for a resize.
func (c *container) outgoing() bool { return c.replaced != "" && c.replaced == c.newest.ID() }

func (c *container) newestResources() *runtimeapi.LinuxContainerResources {
	if c.newest == nil {
		return nil
	}
	return c.newest.Status.GetResources().GetLinux()
}

// checkResize begins what is left to do of the pod's resizes.
func (r *run) checkResize(ctx context.Context) {
	if r.resize.busy || r.resize.reverted {
		return
	}
	changes := r.changes()
	if len(changes) == 0 && (r.starting != nil || slices.ContainsFunc(r.containers, (*container).outgoing)) {
		return // until it has been started
	}
	if len(changes) == 0 {
		if r.resize.progress != nil {
			r.event(nil, false, "ResizeCompleted", "Pod resize completed")
		}
		r.resize.progress = nil
		r.actuated()
		return
	}
	if time.Now().Before(r.resize.retry) {
		r.at(r.resize.retry)
		return
	}
	if r.resize.progress == nil {
		r.resize.progress = &podstatus.Condition{Status: corev1.ConditionTrue}
		r.event(nil, false, "ResizeStarted", "Pod resize started")
	}
	plan := &resize.Plan{
		Generation: r.pod.Generation, Sandbox: r.sandbox.GetId(),
		Size: config.SandboxResources(r.pod), Overhead: config.SandboxOverhead(r.pod),
	}
	plan.Grows = plan.Size.MemoryLimitInBytes >= r.resize.size.MemoryLimitInBytes
	var anew []change
	for _, one := range changes {
		if one.Restarts() {
			anew = append(anew, one)
		} else {
			plan.Changes = append(plan.Changes, one.Change)
		}
	}
	r.resize.busy = true
	r.beside(ctx, func() func() {
		planCtx, cancel := context.WithTimeout(ctx, containerDeadline)
		defer cancel()
		err := plan.CarryOut(planCtx, r.o.Runtime)
		return func() { r.resized(ctx, plan, anew, err) }
	})
}

// resized takes note of an attempt's outcome.
func (r *run) resized(ctx context.Context, plan *resize.Plan, anew []change, err error) {
	r.resize.busy = false
	if err == nil {
		r.resize.size = plan.Size
		for _, one := range anew {
			if one.c.newest.ID() == one.ID && r.running(one.c) {
				one.c.replaced = one.ID
				r.kill(ctx, one.c, r.p.grace(), "its resources changed, and its resizePolicy requires a restart")
			}
		}
		r.at(time.Now()) // what the runtime says now is looked at
		return
	}
	if plan.Generation != r.pod.Generation {
		return // it was for what is not asked for any more
	}
	if status.Code(err) == codes.ResourceExhausted {
		r.revert()
		r.resize.progress = nil
		r.resize.pending = &podstatus.Condition{Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: err.Error()}
		r.event(nil, true, "ResizeInfeasible", err.Error())
		return
	}
	r.resize.retry = time.Now().Add(resizeRetry)
	r.at(r.resize.retry)
	if before := r.resize.progress; before == nil || before.Message != err.Error() {
		r.event(nil, true, "ResizeError", err.Error())
	}
	r.resize.progress = &podstatus.Condition{Status: corev1.ConditionTrue, Reason: corev1.PodReasonError, Message: err.Error()}
}

// revert gives up what cannot be had: a container that is started anew, and a
// machine, is again as it was. What is asked for remains the Pod's.
func (r *run) revert() {
	for _, c := range r.containers {
		if c.has != nil {
			c.spec.Resources = *c.has.DeepCopy()
		}
	}
	r.resize.reverted = true
	r.outdate() // the downward API tells of them
}

// actuated takes note that every container has what it asks for.
func (r *run) actuated() {
	for _, c := range r.containers {
		if c.has == nil || r.pod.Generation != r.resize.actuated {
			c.has = c.spec.Resources.DeepCopy()
		}
	}
	r.resize.actuated = r.pod.Generation
}

// resourcesOf are a container's as its status has them: what has been granted, and
// what it really has.
func (r *run) resourcesOf(c *container) (allocated corev1.ResourceList, has *corev1.ResourceRequirements) {
	has = c.has
	if has == nil {
		has = &c.spec.Resources
	}
	allocated = c.spec.Resources.Requests
	if r.resize.pending != nil {
		allocated = has.Requests
	}
	if len(has.Limits)+len(has.Requests) == 0 {
		return nil, nil
	}
	return allocated.DeepCopy(), has.DeepCopy()
}

// resizeConditions are there only while there is something to say.
func (r *run) resizeConditions() []corev1.PodCondition {
	var out []corev1.PodCondition
	for _, one := range []struct {
		kind corev1.PodConditionType
		*podstatus.Condition
	}{{corev1.PodResizePending, r.resize.pending}, {corev1.PodResizeInProgress, r.resize.progress}} {
		if one.Condition != nil && !r.ended {
			out = append(out, corev1.PodCondition{
				Type: one.kind, Status: one.Status, Reason: one.Reason, Message: one.Message,
				ObservedGeneration: r.pod.Generation, LastTransitionTime: r.since(one.kind, one.Status),
			})
		}
	}
	return out
}
