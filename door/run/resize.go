package run

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// resizeWait is how long a command waits for a resize, which goes on after it.
const resizeWait = 30 * time.Second

// resize gives a container other resources and waits until it has them, or it
// is known that it cannot.
func (e *entry) resize(ctx context.Context, name string, limits, requests map[string]string) error {
	e.mu.Lock()
	p, done := e.p, e.done
	e.mu.Unlock()
	if e.hasEnded() {
		return class(api.ErrConflict, fmt.Errorf("pod %s has ended", e.key()))
	}
	generation, err := e.ask(name, limits, requests)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, resizeWait)
	defer cancel()
	settled := make(chan error, 1)
	e.r.wg.Go(func() { settled <- e.settle(p.Watch, done, generation) })
	select {
	case err := <-settled:
		return err
	case <-ctx.Done():
	}
	if progress := conditionOf(p.Status(), corev1.PodResizeInProgress); progress != nil && progress.Message != "" {
		return class(api.ErrConflict, fmt.Errorf("resize pod %s: it is tried again: %s", e.key(), progress.Message))
	}
	return fmt.Errorf("resize pod %s: it goes on: %w", e.key(), context.Cause(ctx))
}

// settle waits until a resize is done or refused, also for a command that does
// not wait any more, or done is closed: the pod's end. What is refused is not
// what the next engine, or the pod's next run, begins with.
func (e *entry) settle(watch func() (corev1.PodStatus, <-chan struct{}), done <-chan struct{}, generation int64) error {
	for {
		status, changed := watch()
		if status.ObservedGeneration >= generation {
			pending, progress := conditionOf(status, corev1.PodResizePending), conditionOf(status, corev1.PodResizeInProgress)
			switch {
			case pending != nil:
				if err := e.giveUp(done, status); err != nil {
					e.r.s.log.Warn("that a resize was refused could not be written down", "pod", e.key(), "error", err)
				}
				return class(api.ErrInvalid, fmt.Errorf("resize pod %s: %s: %s", e.key(), pending.Reason, pending.Message))
			case progress == nil:
				return nil
			}
		}
		select {
		case <-changed:
		case <-done:
			return class(api.ErrConflict, fmt.Errorf("resize pod %s: it has ended meanwhile", e.key()))
		case <-e.r.ctx.Done():
			return fmt.Errorf("resize pod %s: it goes on: %w", e.key(), context.Cause(e.r.ctx))
		}
	}
}

// giveUp writes down what the containers of the run that done belongs to have,
// in place of what was refused; unless more has been asked for since.
func (e *entry) giveUp(done <-chan struct{}, status corev1.PodStatus) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.done != done || e.rec.Generation > status.ObservedGeneration {
		return nil
	}
	for _, list := range [][]corev1.ContainerStatus{status.InitContainerStatuses, status.ContainerStatuses} {
		for _, c := range list {
			if _, resized := e.rec.Resources[c.Name]; !resized {
				continue
			}
			has := corev1.ResourceRequirements{}
			if c.Resources != nil {
				has = *c.Resources.DeepCopy()
			}
			e.rec.Resources[c.Name] = has
		}
	}
	return e.save()
}

// ask stores what the container is to have, and tells the pod.
func (e *entry) ask(name string, limits, requests map[string]string) (generation int64, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	spec := e.p.Spec()
	if name == "" {
		name = spec.Spec.Containers[0].Name
	}
	was := resourcesOf(spec, name)
	next := *was.DeepCopy()
	requests = follow(was, limits, requests)
	for _, list := range []struct {
		of     *corev1.ResourceList
		change map[string]string
	}{{&next.Limits, limits}, {&next.Requests, requests}} {
		for key, text := range list.change {
			quantity, err := resource.ParseQuantity(text)
			if err != nil {
				return 0, class(api.ErrInvalid, fmt.Errorf("%s %q: %w", key, text, err))
			}
			if *list.of == nil {
				*list.of = corev1.ResourceList{}
			}
			(*list.of)[corev1.ResourceName(key)] = quantity
		}
	}
	if generation, err = e.p.Resize(name, next); err != nil {
		return 0, class(api.ErrInvalid, err)
	}
	if e.rec.Resources == nil {
		e.rec.Resources = map[string]corev1.ResourceRequirements{}
	}
	for other := range e.rec.Resources { // one that was refused is asked for again
		e.rec.Resources[other] = resourcesOf(spec, other)
	}
	e.rec.Resources[name], e.rec.Generation = next, generation
	return generation, e.save()
}

// follow adds to what is requested the new limits of what was requested to its
// limit: so a guaranteed pod stays one.
func follow(was corev1.ResourceRequirements, limits, requests map[string]string) map[string]string {
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

// resourcesOf are a container's own, empty for one that is not there.
func resourcesOf(pod *corev1.Pod, name string) corev1.ResourceRequirements {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return *list[i].Resources.DeepCopy()
			}
		}
	}
	return corev1.ResourceRequirements{}
}

// resized lays what the pod's containers were resized to over its specification.
func (r *record) resized(p *corev1.Pod) {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			if own, found := r.Resources[list[i].Name]; found {
				list[i].Resources = *own.DeepCopy()
			}
		}
	}
	p.Generation = max(p.Generation, r.Generation)
}

func conditionOf(status corev1.PodStatus, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range status.Conditions {
		if c := &status.Conditions[i]; c.Type == kind {
			return c
		}
	}
	return nil
}
