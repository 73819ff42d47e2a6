package pod

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

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
	wanted := p.newest().DeepCopy()
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
	return p.newest().DeepCopy()
}

// newest returns the pod with all changes. The caller holds mu.
func (p *Pod) newest() *corev1.Pod { return cmp.Or(p.wanted, p.pod) }

// resizeRetry is the pause before a failed resize is retried.
const resizeRetry = 5 * time.Second

// carryOut starts to carry out a resize, beside the loop.
func (r *run) carryOut(ctx context.Context, changes *resize.Plan) {
	if r.Resize.Progress == nil {
		r.Resize.Progress = &podstatus.Condition{Status: corev1.ConditionTrue}
		r.event(nil, false, "ResizeStarted", "Pod resize started")
	}
	r.Resize.Busy = true
	r.beside(ctx, func() func() {
		limited, cancel := context.WithTimeout(ctx, containerDeadline)
		defer cancel()
		err := changes.CarryOut(limited, r.o.Runtime)
		return func() { r.resized(ctx, changes, err) }
	})
}

// resized records the outcome of an attempt.
func (r *run) resized(ctx context.Context, changes *resize.Plan, err error) {
	r.Resize.Busy = false
	if err == nil {
		r.Resize.Size = changes.Size
		for _, c := range r.Containers {
			if id := c.Newest.ID(); slices.Contains(changes.Restarts, id) && r.Running(c) {
				c.Replaced = id
				r.kill(ctx, c, r.p.grace(), "its resources changed, and its resizePolicy requires a restart")
			}
		}
		return
	}
	if changes.Generation != r.Pod.Generation {
		return // the resize was replaced by a newer one
	}
	if status.Code(err) == codes.ResourceExhausted {
		r.revert()
		r.Resize.Progress = nil
		r.Resize.Pending = &podstatus.Condition{Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: err.Error()}
		r.event(nil, true, "ResizeInfeasible", err.Error())
		return
	}
	r.Resize.Retry = time.Now().Add(resizeRetry)
	if before := r.Resize.Progress; before == nil || before.Message != err.Error() {
		r.event(nil, true, "ResizeError", err.Error())
	}
	r.Resize.Progress = &podstatus.Condition{Status: corev1.ConditionTrue, Reason: corev1.PodReasonError, Message: err.Error()}
}

// revert restores the granted resources of the containers after the runtime refused a resize. The Pod keeps the refused
// wish.
func (r *run) revert() {
	for _, c := range r.Containers {
		if c.Has != nil {
			c.Spec.Resources = *c.Has.DeepCopy()
		}
	}
	r.Resize.Reverted = true
	r.outdate() // volumes of the downward API contain resources
}

// actuated records that every container has the resources in its spec.
func (r *run) actuated() {
	if r.Resize.Progress != nil {
		r.event(nil, false, "ResizeCompleted", "Pod resize completed")
	}
	r.Resize.Progress = nil
	for _, c := range r.Containers {
		if c.Has == nil || r.Pod.Generation != r.Resize.Actuated {
			c.Has = c.Spec.Resources.DeepCopy()
		}
	}
	r.Resize.Actuated = r.Pod.Generation
}

// resourcesOf returns a container's resources for its status: the granted and the actual ones.
func (r *view) resourcesOf(c *container) (allocated corev1.ResourceList, has *corev1.ResourceRequirements) {
	has = c.Has
	if has == nil {
		has = &c.Spec.Resources
	}
	allocated = c.Spec.Resources.Requests
	if r.Resize.Pending != nil {
		allocated = has.Requests
	}
	if len(has.Limits)+len(has.Requests) == 0 {
		return nil, nil
	}
	return allocated.DeepCopy(), has.DeepCopy()
}
