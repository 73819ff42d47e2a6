package pod

import (
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/resize"
)

// Update changes the pod to next, a newer version of it from an API server. It reports whether next differs from the
// last request. Volumes of the downward API show the new labels and annotations. A container with a new image is
// restarted. Resources follow the rules of Resize; if next breaks them, the resources stay and the pod gets the
// condition PodResizePending. A non-nil refused is that condition, and the resources stay too. Update ignores other
// changes of the specification.
func (p *Pod) Update(next *corev1.Pod, refused *podstatus.Condition) (changed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted, changed := p.updated(next, refused)
	if !changed {
		return false
	}
	p.wanted, p.refused = wanted, refused
	p.asked++
	p.Changed()
	return true
}

// Differs returns the result that Update would return, and changes no state.
func (p *Pod) Differs(next *corev1.Pod, refused *podstatus.Condition) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, changed := p.updated(next, refused)
	return changed
}

// updated returns the pod with the update applied. The caller holds mu.
func (p *Pod) updated(next *corev1.Pod, refused *podstatus.Condition) (wanted *corev1.Pod, changed bool) {
	before := p.newest()
	wanted = Updated(before, next)
	return wanted, !equality.Semantic.DeepEqual(before, wanted) || !equality.Semantic.DeepEqual(p.refused, refused)
}

// Updated returns a copy of before with the fields of next that an Update applies, without annotations that are
// reserved for the engine.
func Updated(before, next *corev1.Pod) *corev1.Pod {
	out := before.DeepCopy()
	out.Labels, out.Annotations, out.Generation = next.Labels, maps.Clone(next.Annotations), next.Generation
	maps.DeleteFunc(out.Annotations, func(key, _ string) bool { return annotations.Internal(key) })
	out.Spec.ActiveDeadlineSeconds = next.Spec.ActiveDeadlineSeconds
	for c := range podspec.All(&out.Spec) {
		if newer := podspec.Find(&next.Spec, c.Name); newer != nil {
			c.Image, c.Resources = newer.Image, *newer.Resources.DeepCopy()
		}
	}
	return out
}

// Answer returns a Watch of the outcome of all requests so far. Until the pod has applied them, its status has an
// ObservedGeneration of -1.
func (p *Pod) Answer() func() (corev1.PodStatus, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	asked := p.asked
	return func() (corev1.PodStatus, <-chan struct{}) {
		p.mu.Lock()
		defer p.mu.Unlock()
		status := *p.status.DeepCopy()
		if p.applied < asked {
			status.ObservedGeneration = -1
		}
		return status, p.changed
	}
}

// applyWanted applies the requests of Update and Resize.
func (r *run) applyWanted() {
	r.p.mu.Lock()
	wanted, asked, refused := r.p.wanted, r.p.asked, r.p.refused
	r.p.mu.Unlock()
	if asked == r.asked {
		return
	}
	r.asked = asked
	r.Pod.Labels, r.Pod.Annotations, r.Pod.Generation = wanted.Labels, wanted.Annotations, wanted.Generation
	r.Pod.Spec.ActiveDeadlineSeconds = wanted.Spec.ActiveDeadlineSeconds
	r.applyImages(wanted)
	r.applyResources(wanted, refused)
	r.outdate() // volumes of the downward API contain them
}

// applyImages applies new images of containers, and resets the backoff of these containers.
func (r *run) applyImages(wanted *corev1.Pod) {
	for _, c := range r.Containers {
		spec := podspec.Find(&wanted.Spec, c.Spec.Name)
		if c.Kind != podspec.Ephemeral && spec != nil && spec.Image != c.Spec.Image {
			c.Spec.Image, c.Image = spec.Image, plan.Image{}
			c.Try, c.Restart = plan.Try{}, backoff.Backoff{}
		}
	}
}

// applyResources applies new resources of containers, all or none.
func (r *run) applyResources(wanted *corev1.Pod, refused *podstatus.Condition) {
	next := map[*container]*corev1.Container{}
	for _, c := range r.Containers {
		spec := resize.Container(&wanted.Spec, c.Spec.Name)
		if spec == nil || c.Kind == podspec.Ephemeral || equality.Semantic.DeepEqual(spec.Resources, c.Spec.Resources) {
			continue
		}
		next[c] = spec
		if err := resize.Check(c.Spec.Resources, spec.Resources); err != nil && refused == nil {
			message := fmt.Sprintf("container %s: %v", c.Spec.Name, err)
			refused = &podstatus.Condition{Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible, Message: message}
		}
	}
	if len(next) == 0 {
		r.Resize.Pending, r.Resize.Reverted = nil, false
		return
	}
	if before := r.Resize.Pending; refused != nil && (before == nil || *before != *refused) {
		r.event(nil, true, "Resize"+refused.Reason, refused.Message)
	}
	if r.Resize.Pending = refused; refused != nil {
		return
	}
	r.Resize.Retry, r.Resize.Reverted, r.Resize.Actuated = time.Time{}, false, -1
	for c, spec := range next {
		if c.Has == nil {
			c.Has = c.Spec.Resources.DeepCopy()
		}
		c.Spec.Resources = *spec.Resources.DeepCopy()
	}
}
