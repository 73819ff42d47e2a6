package manager

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// resizeWait is how long a command waits for a resize, which continues afterwards.
const resizeWait = 30 * time.Second

// Resize changes limits and requests of a container (empty: the first), by names of resources, and waits up to
// resizeWait for the change. Other resources stay, but a request that equals its limit follows the limit. The error is
// errdefs.ErrInvalidArgument for a resize that is not possible, and of errdefs.ErrConflict for a pod that has ended or retries the resize.
func (p *Pod) Resize(ctx context.Context, name string, limits, requests map[string]string) error {
	p.mu.Lock()
	run, done := p.p, p.done
	p.mu.Unlock()
	if p.HasEnded() {
		return errclass.New(errdefs.ErrConflict, "pod %s has ended", p.Key())
	}
	generation, err := p.requestResize(name, limits, requests)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, resizeWait)
	defer cancel()
	settled := make(chan error, 1)
	p.m.wg.Go(func() { settled <- requested{p, done, generation}.await(run.Answer()) })
	select {
	case err := <-settled:
		return err
	case <-ctx.Done():
	}
	if progress := conditionOf(run.Status(), corev1.PodResizeInProgress); progress != nil && progress.Message != "" {
		return errclass.New(errdefs.ErrConflict, "resize pod %s: it will be retried: %s", p.Key(), progress.Message)
	}
	return fmt.Errorf("resize pod %s: it continues: %w", p.Key(), context.Cause(ctx))
}

// requested is a resize that was requested from the run of done.
type requested struct {
	pod        *Pod
	done       <-chan struct{}
	generation int64
}

// awaitBeside awaits the resize in the background.
func (r requested) awaitBeside(run *pod.Pod) {
	answer := run.Answer()
	r.pod.m.wg.Go(func() {
		if err := r.await(answer); err != nil {
			r.pod.m.o.Logger.Info("a pod was not resized", "pod", r.pod.Key(), "error", err)
		}
	})
}

// await waits until the resize is done or refused, or until done is closed at the pod's end. It also runs after the
// command has stopped waiting. A refused resize does not apply to the next manager or the pod's next run.
func (r requested) await(watch func() (corev1.PodStatus, <-chan struct{})) error {
	for {
		status, changed := watch()
		if status.ObservedGeneration >= r.generation {
			pending, progress := conditionOf(status, corev1.PodResizePending), conditionOf(status, corev1.PodResizeInProgress)
			switch {
			case progress != nil: // including a resize that was granted before the pending one
			case pending != nil:
				r.finish(status, false)
				return errclass.New(errdefs.ErrInvalidArgument, "resize pod %s: %s: %s", r.pod.Key(), pending.Reason, pending.Message)
			default:
				r.finish(status, true)
				return nil
			}
		}
		select {
		case <-changed:
		case <-r.done:
			return errclass.New(errdefs.ErrConflict, "resize pod %s: the pod has ended", r.pod.Key())
		case <-r.pod.m.ctx.Done():
			return fmt.Errorf("resize pod %s: it continues: %w", r.pod.Key(), context.Cause(r.pod.m.ctx))
		}
	}
}

// finish saves that the run of done is resized, or the current resources after a refusal, and calls
// Options.Resized. It does nothing if another resize was requested since.
func (r requested) finish(status corev1.PodStatus, granted bool) {
	r.pod.mu.Lock()
	if r.pod.done != r.done || r.pod.rec.Generation > status.ObservedGeneration {
		r.pod.mu.Unlock()
		return
	}
	if !granted {
		r.pod.rec.keepGranted(status)
	}
	r.pod.rec.Before = nil
	err := r.pod.save()
	r.pod.mu.Unlock()
	if err != nil {
		r.pod.m.o.Logger.Warn("cannot save the outcome of a resize", "pod", r.pod.Key(), "error", err)
	}
	if r.pod.m.o.Resized != nil {
		r.pod.m.o.Resized(r.pod)
	}
}

// keepGranted copies the containers' current resources to the record in place of refused ones.
func (r *Record) keepGranted(status corev1.PodStatus) {
	for c := range podstatus.Every(&status) {
		if _, resized := r.Resources[c.Name]; !resized {
			continue
		}
		has := corev1.ResourceRequirements{}
		if c.Resources != nil {
			has = *c.Resources.DeepCopy()
		}
		r.Resources[c.Name] = has
	}
}

// requestResize saves the wanted resources of the container, and requests them from the pod.
func (p *Pod) requestResize(name string, limits, requests map[string]string) (generation int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	spec := p.p.Spec()
	if name == "" {
		name = spec.Spec.Containers[0].Name
	}
	was := resourcesOf(spec, name)
	next := *was.DeepCopy()
	requests = raiseRequests(was, limits, requests)
	for _, list := range []struct {
		of     *corev1.ResourceList
		change map[string]string
	}{{&next.Limits, limits}, {&next.Requests, requests}} {
		for key, text := range list.change {
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				return 0, errclass.New(errdefs.ErrInvalidArgument, "%s %q: %w", key, text, err)
			}
			if *list.of == nil {
				*list.of = corev1.ResourceList{}
			}
			(*list.of)[corev1.ResourceName(key)] = quantity
		}
	}
	if generation, err = p.p.CanResize(name, next); err != nil {
		return 0, errclass.With(errdefs.ErrInvalidArgument, err)
	}
	before := p.rec
	p.rec.begins(p.rec.spec())
	p.rec.Resources = maps.Clone(p.rec.Resources)
	if p.rec.Resources == nil {
		p.rec.Resources = map[string]corev1.ResourceRequirements{}
	}
	for other := range p.rec.Resources { // request refused resources again
		p.rec.Resources[other] = resourcesOf(spec, other)
	}
	p.rec.Resources[name], p.rec.Generation = next, generation
	if err := p.save(); err != nil { // without the record, the next manager would restore the old resources
		p.rec = before
		return 0, fmt.Errorf("resize pod %s: %w", p.Key(), err)
	}
	return p.p.Resize(name, next)
}

// raiseRequests adds new limits to the requests where the old request equals the old limit, so that a guaranteed pod
// stays guaranteed.
func raiseRequests(was corev1.ResourceRequirements, limits, requests map[string]string) map[string]string {
	out := maps.Clone(requests)
	if out == nil {
		out = map[string]string{}
	}
	for key, text := range limits {
		limit, limited := was.Limits[corev1.ResourceName(key)]
		request, requested := was.Requests[corev1.ResourceName(key)]
		if _, given := out[key]; !given && limited && requested && request.Cmp(limit) == 0 {
			out[key] = text
		}
	}
	return out
}

// resourcesOf returns a container's resources, empty if it does not exist.
func resourcesOf(pod *corev1.Pod, name string) corev1.ResourceRequirements {
	if c := podspec.Find(&pod.Spec, name); c != nil {
		return *c.Resources.DeepCopy()
	}
	return corev1.ResourceRequirements{}
}

func conditionOf(status corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}
