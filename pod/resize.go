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
)

// ErrResize is matched by Resize's errors: what is asked for is not allowed.
var ErrResize = errors.New("cannot be resized")

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
	wanted := p.wanted
	if wanted == nil {
		wanted = p.pod
	}
	wanted = wanted.DeepCopy()
	container := resizable(wanted, name)
	if container == nil {
		return 0, fmt.Errorf("pod %s: container %q %w: it is none of the pod's containers or sidecars", p.pod.Name, name, ErrResize)
	}
	before := qosClass(wanted)
	if err := checkResize(container.Resources, next); err != nil {
		return 0, fmt.Errorf("pod %s: container %s %w: %w", p.pod.Name, name, ErrResize, err)
	}
	container.Resources = *next.DeepCopy()
	if after := qosClass(wanted); after != before {
		return 0, fmt.Errorf("pod %s: container %s %w: the pod's QoS class would change from %s to %s", p.pod.Name, name, ErrResize, before, after)
	}
	wanted.Generation++
	p.wanted = wanted
	p.Changed()
	return wanted.Generation, nil
}

// Spec is the pod as it is asked for: as it was given, and resized since. The
// caller may keep it.
func (p *Pod) Spec() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted != nil {
		return p.wanted.DeepCopy()
	}
	return p.pod.DeepCopy()
}

func resizable(pod *corev1.Pod, name string) *corev1.Container {
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; c.Name == name {
			return c
		}
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.Name == name && isSidecar(c) {
			return c
		}
	}
	return nil
}

// checkResize is what the API server allows of a resize.
func checkResize(old, next corev1.ResourceRequirements) error {
	for _, list := range []struct {
		kind      string
		old, next corev1.ResourceList
	}{{"limit", old.Limits, next.Limits}, {"request", old.Requests, next.Requests}} {
		for name, quantity := range list.next {
			have, set := list.old[name]
			if quantity.Sign() < 0 {
				return fmt.Errorf("the %s of %s is negative", list.kind, name)
			}
			if (!set || have.Cmp(quantity) != 0) && name != corev1.ResourceCPU && name != corev1.ResourceMemory {
				return fmt.Errorf("only cpu and memory resources are mutable, not %s", name)
			}
		}
		for name := range list.old {
			if _, set := list.next[name]; !set {
				return fmt.Errorf("the %s of %s cannot be removed", list.kind, name)
			}
		}
	}
	for name, request := range next.Requests {
		if limit, set := next.Limits[name]; set && request.Cmp(limit) > 0 {
			return fmt.Errorf("the request of %s, %s, is more than the limit %s", name, request.String(), limit.String())
		}
	}
	return nil
}

// resizing is how far the pod's latest resize has come.
type resizing struct {
	busy     bool
	actuated int64      // the generation that all containers have
	pending  *condition // it cannot be had
	progress *condition // it is being done; with a reason, the last attempt failed
	retry    time.Time
	size     *runtimeapi.LinuxContainerResources // of the sandbox, as last told
}

// resizeRetry is how soon a resize that failed is tried again.
const resizeRetry = 5 * time.Second

// takeResize takes over the resources that the pod is to have now.
func (r *run) takeResize() {
	r.p.mu.Lock()
	wanted := r.p.wanted
	r.p.mu.Unlock()
	if wanted == nil || wanted.Generation == r.pod.Generation {
		return
	}
	r.pod.Generation = wanted.Generation
	for _, c := range r.containers {
		if spec := resizable(wanted, c.spec.Name); spec != nil && c.kind != ephemeral {
			if c.has == nil {
				c.has = c.spec.Resources.DeepCopy()
			}
			c.spec.Resources = *spec.Resources.DeepCopy()
		}
	}
	r.resize.pending, r.resize.retry = nil, time.Time{}
	r.stale = r.mounted // the downward API tells of them
}

// change is a container whose resources are not what they should be.
type change struct {
	c           *container
	id          string
	want        *runtimeapi.LinuxContainerResources
	cpu, memory bool
	shrinks     bool // its memory
}

// changes are the running containers whose resources differ from what the
// runtime says that they have; a runtime that says nothing has no changes.
func (r *run) changes() []change {
	var out []change
	for _, c := range r.of(sidecar, regular) {
		have := c.newestResources()
		if !r.running(c) || have == nil || c.killing == c.newest.id() {
			continue
		}
		want := containerResources(r.pod, c.spec)
		one := change{
			c: c, id: c.newest.id(), want: want,
			cpu:     want.CpuQuota != max(have.CpuQuota, 0) || want.CpuShares != have.CpuShares,
			memory:  want.MemoryLimitInBytes != have.MemoryLimitInBytes,
			shrinks: want.MemoryLimitInBytes > 0 && (have.MemoryLimitInBytes == 0 || want.MemoryLimitInBytes < have.MemoryLimitInBytes),
		}
		if one.cpu || one.memory {
			out = append(out, one)
		}
	}
	return out
}

// outgoing tells whether the newest instance is one that is ended for a resize.
func (c *container) outgoing() bool { return c.replaced != "" && c.replaced == c.newest.id() }

func (c *container) newestResources() *runtimeapi.LinuxContainerResources {
	if c.newest == nil {
		return nil
	}
	return c.newest.status.GetResources().GetLinux()
}

// checkResize begins what is left to do of the pod's resizes.
func (r *run) checkResize(ctx context.Context) {
	if r.resize.busy || r.resize.pending != nil {
		return
	}
	changes := r.changes()
	if len(changes) == 0 && slices.ContainsFunc(r.containers, (*container).outgoing) {
		return // until it has been started anew
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
		r.resize.progress = &condition{status: corev1.ConditionTrue}
		r.event(nil, false, "ResizeStarted", "Pod resize started")
	}
	plan := resizePlan{generation: r.pod.Generation, sandbox: r.sandbox.GetId(), size: sandboxResources(r.pod), overhead: sandboxOverhead(r.pod)}
	plan.grows = plan.size.MemoryLimitInBytes >= r.resize.size.MemoryLimitInBytes
	var anew []change
	for _, one := range changes {
		if restartsFor(one) {
			anew = append(anew, one)
		} else {
			plan.changes = append(plan.changes, one)
		}
	}
	r.resize.busy = true
	r.beside(ctx, func() func() {
		err := r.carryOut(ctx, plan)
		return func() { r.resized(ctx, plan, anew, err) }
	})
}

// restartsFor tells whether the container asked to be started anew for such a
// change.
func restartsFor(one change) bool {
	for _, policy := range one.c.spec.ResizePolicy {
		if !isAnew(policy) {
			continue
		}
		if policy.ResourceName == corev1.ResourceCPU && one.cpu || policy.ResourceName == corev1.ResourceMemory && one.memory {
			return true
		}
	}
	return false
}

// resizePlan is one attempt: the machine is grown before its containers' limits,
// and shrunk after them.
type resizePlan struct {
	generation     int64
	sandbox        string
	size, overhead *runtimeapi.LinuxContainerResources
	grows          bool
	changes        []change
}

func (r *run) carryOut(ctx context.Context, plan resizePlan) error {
	ctx, cancel := context.WithTimeout(ctx, containerDeadline)
	defer cancel()
	whole := func() error {
		_, err := r.o.Runtime.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{
			PodSandboxId: plan.sandbox, Resources: plan.size, Overhead: plan.overhead,
		})
		return err
	}
	if plan.grows {
		if err := whole(); err != nil {
			return err
		}
	}
	for _, one := range plan.changes {
		if one.shrinks {
			if err := r.fits(ctx, one); err != nil {
				return err
			}
		}
		update := &runtimeapi.ContainerResources{Linux: one.want}
		if one.want.CpuQuota == 0 {
			update.Linux.CpuQuota = -1 // none, where 0 is no change
		}
		if err := r.o.Runtime.UpdateContainerResources(ctx, one.id, update); err != nil {
			return fmt.Errorf("container %s: %w", one.c.spec.Name, err)
		}
	}
	if !plan.grows {
		return whole()
	}
	return nil
}

// fits refuses a limit below what the container uses: the kernel would kill it.
func (r *run) fits(ctx context.Context, one change) error {
	stats, err := r.o.Runtime.ContainerStats(ctx, one.id)
	if err != nil {
		return fmt.Errorf("container %s: what it uses: %w", one.c.spec.Name, err)
	}
	used := stats.GetMemory().GetWorkingSetBytes().GetValue()
	if used > uint64(one.want.MemoryLimitInBytes) {
		return fmt.Errorf("container %s: attempting to set its memory limit (%d) below current usage (%d)",
			one.c.spec.Name, one.want.MemoryLimitInBytes, used)
	}
	return nil
}

// resized takes note of an attempt's outcome.
func (r *run) resized(ctx context.Context, plan resizePlan, anew []change, err error) {
	r.resize.busy = false
	if err == nil {
		r.resize.size = plan.size
		for _, one := range anew {
			if one.c.newest.id() == one.id && r.running(one.c) {
				one.c.replaced = one.id
				r.kill(ctx, one.c, r.p.grace(), "its resources have changed, and its resizePolicy wants it started anew")
			}
		}
		r.at(time.Now()) // what the runtime says now is looked at
		return
	}
	if plan.generation != r.pod.Generation {
		return // it was for what is not asked for any more
	}
	if status.Code(err) == codes.ResourceExhausted {
		r.revert()
		r.resize.progress = nil
		r.resize.pending = &condition{corev1.ConditionTrue, corev1.PodReasonInfeasible, err.Error()}
		r.event(nil, true, "ResizeInfeasible", err.Error())
		return
	}
	r.resize.retry = time.Now().Add(resizeRetry)
	r.at(r.resize.retry)
	if before := r.resize.progress; before == nil || before.message != err.Error() {
		r.event(nil, true, "ResizeError", err.Error())
	}
	r.resize.progress = &condition{corev1.ConditionTrue, corev1.PodReasonError, err.Error()}
}

// revert gives up what cannot be had: a container that is started anew, and a
// machine, is again as it was. What is asked for remains the Pod's.
func (r *run) revert() {
	for _, c := range r.containers {
		if c.has != nil {
			c.spec.Resources = *c.has.DeepCopy()
		}
	}
	r.stale = r.mounted // the downward API tells of them
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
		*condition
	}{{corev1.PodResizePending, r.resize.pending}, {corev1.PodResizeInProgress, r.resize.progress}} {
		if one.condition != nil && !r.ended {
			out = append(out, corev1.PodCondition{
				Type: one.kind, Status: one.status, Reason: one.reason, Message: one.message,
				ObservedGeneration: r.pod.Generation, LastTransitionTime: r.since(one.kind, one.status),
			})
		}
	}
	return out
}
