package manager

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Update changes a pod to next, a newer version of it, by the rules of pod.Pod's Update. It saves the change for the
// next manager. Without changes it does nothing.
func (p *Pod) Update(next *corev1.Pod, refused *podstatus.Condition) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	run, done := p.p, p.done
	if p.rec.Ended != nil {
		return nil
	}
	resized := refused == nil && run.Differs(next, refused)
	before, given := p.rec, p.rec.spec()
	wanted := pod.Updated(given, next)
	dirty := next.Generation > given.Generation
	p.rec.Generation = max(p.rec.Generation, next.Generation)
	if changed := changedOf(wanted); !equality.Semantic.DeepEqual(changed, changedOf(given)) {
		p.rec.Changed, dirty = changed, true
	}
	resized = resized && p.rec.noteResources(given, wanted)
	if dirty || resized {
		if err := p.save(); err != nil {
			p.rec = before
			return fmt.Errorf("update pod %s: %w", p.Key(), err)
		}
	}
	run.Update(next, refused) // the next manager continues from the saved change
	if resized {
		requested{p, done, next.Generation}.awaitBeside(run)
	}
	return nil
}

// noteResources records the resources of wanted that differ from the pod as it was added, and reports whether any
// differ from before.
func (r *Record) noteResources(before, wanted *corev1.Pod) (found bool) {
	next := map[string]corev1.ResourceRequirements{}
	for c := range podspec.All(&wanted.Spec) {
		if !equality.Semantic.DeepEqual(c.Resources, resourcesOf(r.Pod, c.Name)) {
			next[c.Name] = *c.Resources.DeepCopy()
		}
		found = found || !equality.Semantic.DeepEqual(c.Resources, resourcesOf(before, c.Name))
	}
	r.Resources = next
	if found {
		r.begins(before)
	}
	return found
}

// changedOf returns the part of a pod that can change.
func changedOf(p *corev1.Pod) *Changed {
	out := &Changed{Labels: p.Labels, Annotations: p.Annotations, Deadline: p.Spec.ActiveDeadlineSeconds, Images: map[string]string{}}
	for c := range podspec.All(&p.Spec) {
		out.Images[c.Name] = c.Image
	}
	return out
}

// over applies the changes to a pod.
func (c *Changed) over(p *corev1.Pod) {
	if c == nil {
		return
	}
	p.Labels, p.Annotations, p.Spec.ActiveDeadlineSeconds = c.Labels, c.Annotations, c.Deadline
	for container := range podspec.All(&p.Spec) {
		if image, known := c.Images[container.Name]; known {
			container.Image = image
		}
	}
}
