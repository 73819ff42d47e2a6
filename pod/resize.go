package pod

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/resize"
)

// errResize is matched by Resize's errors for changes that are not allowed.
var errResize = errdefs.ErrInvalidArgument.WithMessage("cannot be resized")

// keepClass is advice for a resize that would change a pod's QoS class.
var keepClass = map[corev1.PodQOSClass]string{
	corev1.PodQOSBestEffort: "set limits at creation, in its file or with run's --memory and --cpus, and resize those",
	corev1.PodQOSBurstable:  "keep a request below its limit, or leave a limit out",
	corev1.PodQOSGuaranteed: "change the request and the limit equally",
}

// Resize changes a container's resources while it runs, or restarts it if its resizePolicy asks for that. next may
// differ only in CPU and memory, must keep every limit and request, and must keep the pod's QoS class. Otherwise the
// error matches errResize. The pod's status shows the outcome once its ObservedGeneration is the returned number: in
// the conditions PodResizePending and PodResizeInProgress, and in the containers' resources. It is safe for concurrent
// use, at any time.
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

// CanResize returns the result that Resize would return, and changes no state.
func (p *Pod) CanResize(name string, next corev1.ResourceRequirements) (generation int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted, err := p.resized(name, next)
	if err != nil {
		return 0, err
	}
	return wanted.Generation, nil
}

// resized returns the pod with the resize applied. The caller holds mu.
func (p *Pod) resized(name string, next corev1.ResourceRequirements) (*corev1.Pod, error) {
	wanted := p.wanted
	if wanted == nil {
		wanted = p.pod
	}
	wanted = wanted.DeepCopy()
	container := resize.Container(&wanted.Spec, name)
	if container == nil {
		return nil, fmt.Errorf("pod %s: container %q %w: the pod has no such container or sidecar", p.pod.Name, name, errResize)
	}
	before := podspec.QOS(wanted)
	if err := resize.Check(container.Resources, next); err != nil {
		return nil, fmt.Errorf("pod %s: container %s %w: %w", p.pod.Name, name, errResize, err)
	}
	container.Resources = *next.DeepCopy()
	if after := podspec.QOS(wanted); after != before {
		return nil, fmt.Errorf("pod %s: container %s %w: the pod's QoS class would change from %s to %s: %s",
			p.pod.Name, name, errResize, before, after, keepClass[before])
	}
	wanted.Generation++
	return wanted, nil
}

// Spec returns the pod as given to New, with all later changes by Resize and Update. The caller may keep it.
func (p *Pod) Spec() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted != nil {
		return p.wanted.DeepCopy()
	}
	return p.pod.DeepCopy()
}

// resizing is the progress of the pod's latest resize.
type resizing struct {
	busy     bool
	actuated int64                // the generation that all containers have; -1 for none
	pending  *podstatus.Condition // it cannot be granted
	reverted bool                 // the runtime refused it; while false, earlier granted changes are still carried out
	progress *podstatus.Condition // it is being carried out; with a reason, the last attempt failed
	retry    time.Time
	size     *runtimeapi.LinuxContainerResources // of the sandbox, as last sent
}

// resizeRetry is the pause before a failed resize is retried.
const resizeRetry = 5 * time.Second

// change is a pending change of one of the pod's containers.
type change struct {
	resize.Change
	c *container
}

// changes returns the running containers with resources that differ from the runtime's report. A runtime that reports
// none has no changes.
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

// outgoing reports whether the newest instance is being stopped for a resize or a new image.
func (c *container) outgoing() bool { return c.replaced != "" && c.replaced == c.newest.ID() }

func (c *container) newestResources() *runtimeapi.LinuxContainerResources {
	if c.newest == nil {
		return nil
	}
	return c.newest.Status.GetResources().GetLinux()
}

// checkResize starts the next step of the pod's resizes.
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

// resized records the outcome of an attempt.
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
		r.at(time.Now()) // read the runtime's report now
		return
	}
	if plan.Generation != r.pod.Generation {
		return // the resize was replaced by a newer one
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

// revert restores the granted resources of the containers after the runtime refused a resize. The Pod keeps the refused
// wish.
func (r *run) revert() {
	for _, c := range r.containers {
		if c.has != nil {
			c.spec.Resources = *c.has.DeepCopy()
		}
	}
	r.resize.reverted = true
	r.outdate() // volumes of the downward API contain resources
}

// actuated records that every container has the resources in its spec.
func (r *run) actuated() {
	for _, c := range r.containers {
		if c.has == nil || r.pod.Generation != r.resize.actuated {
			c.has = c.spec.Resources.DeepCopy()
		}
	}
	r.resize.actuated = r.pod.Generation
}

// resourcesOf returns a container's resources for its status: the granted and the actual ones.
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

// resizeConditions returns the pending and the progress condition, if set.
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
