package manager

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

const recordFile = "pod.json"

// Record is what survives of a pod on disk, mode 0600: environments are in it.
type Record struct {
	// Pod is the pod as it was given, defaulted and validated, with a UID.
	Pod *corev1.Pod `json:"pod"`
	// Network, Template, Warm, Accel, Size and Ports are the like-named pod.Options.
	Network  string                    `json:"network,omitempty"`
	Template string                    `json:"template,omitempty"`
	Warm     string                    `json:"warm,omitempty"`
	Accel    string                    `json:"accel,omitempty"`
	Size     runtimev1.Size            `json:"size,omitzero"`
	Ports    []*runtimeapi.PortMapping `json:"ports,omitempty"`
	// Since is when the current run was asked for.
	Since time.Time `json:"since,omitzero"`
	// Begun: the turn of a pod has come that waits for others of its Job.
	Begun bool `json:"begun,omitempty"`
	// JobFailed: its turn will not come any more.
	JobFailed bool `json:"jobFailed,omitempty"`
	// Foreground: the pod ends with the client that ran it.
	Foreground bool `json:"foreground,omitempty"`
	// Stopping: somebody wants its end.
	Stopping bool `json:"stopping,omitempty"`
	// Grace is the shortest grace that the pod was given for its end, in seconds, and EndBy when it is over.
	Grace *int64    `json:"grace,omitempty"`
	EndBy time.Time `json:"endBy,omitzero"`
	// Remove: it is removed when it has ended.
	Remove bool `json:"remove,omitempty"`
	// Ended is the status that it ended with; nil for one that has not.
	Ended *corev1.PodStatus `json:"ended,omitempty"`
	// Earlier is the like-named one of pod.Options.
	Earlier string `json:"earlier,omitempty"`
	// Ephemeral are the containers that were added to the running pod.
	Ephemeral []corev1.EphemeralContainer `json:"ephemeral,omitempty"`
	// Resources are what containers were resized to, by name, in Generation steps.
	Resources  map[string]corev1.ResourceRequirements `json:"resources,omitempty"`
	Generation int64                                  `json:"generation,omitempty"`
	// Before are the resources of all containers before the resize that is under way; nil is none under way.
	Before map[string]corev1.ResourceRequirements `json:"before,omitempty"`
	// Changed is what else of the pod was changed since it was given; nil is nothing.
	Changed *Changed `json:"changed,omitempty"`
	// Verdict is why the pod is ended, or was; nil for one that ends by itself or as it was asked to.
	Verdict *Verdict `json:"verdict,omitempty"`
}

// Changed is what of a pod can change while it runs, beside its resources.
type Changed struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Deadline    *int64            `json:"deadline,omitempty"` // activeDeadlineSeconds
	// Images are those of all containers, by name.
	Images map[string]string `json:"images,omitempty"`
}

// leastGrace is what a pod has at least of its grace, in seconds, when the next manager goes on with its end: nobody may
// have told its containers before.
const leastGrace = 2

// graceLeft is what is left of the pod's grace, in seconds; nil for a pod that was given none.
func (r *Record) graceLeft() *int64 {
	if r.Grace == nil {
		return nil
	}
	left := int64(math.Ceil(time.Until(r.EndBy).Seconds()))
	return new(min(max(left, leastGrace), *r.Grace)) // at most all of it: the clock may have been set back
}

// removesItself tells whether nobody else removes the pod when it has ended.
func (r *Record) removesItself() bool { return r.Remove && !r.Foreground }

// spec is the pod with the containers that were added to it, as it was resized and changed.
func (r *Record) spec() *corev1.Pod {
	if len(r.Ephemeral)+len(r.Resources) == 0 && r.Changed == nil {
		return r.Pod
	}
	p := r.Pod.DeepCopy()
	r.resized(p)
	r.Changed.over(p)
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, r.Ephemeral...)
	return p
}

// resized lays what the pod's containers were resized to over its specification.
func (r *Record) resized(p *corev1.Pod) {
	lay(r.Resources, p)
	p.Generation = max(p.Generation, r.Generation)
}

// had is the pod as it was before the resize that is under way.
func (r *Record) had() *corev1.Pod {
	p := r.spec()
	if r.Before != nil {
		p = p.DeepCopy()
		lay(r.Before, p)
	}
	return p
}

// begins notes what the containers have that are to be resized now.
func (r *Record) begins(before *corev1.Pod) {
	if r.Before != nil {
		return // of the resize that this one takes the place of
	}
	r.Before = map[string]corev1.ResourceRequirements{}
	for c := range podspec.All(&before.Spec) {
		r.Before[c.Name] = *c.Resources.DeepCopy()
	}
}

// lay gives the containers of a pod those resources that are named.
func lay(resources map[string]corev1.ResourceRequirements, p *corev1.Pod) {
	for c := range podspec.All(&p.Spec) {
		if own, found := resources[c.Name]; found {
			c.Resources = *own.DeepCopy()
		}
	}
}

// save writes the record; the caller holds the lock or is alone with p.
func (p *Pod) save() error {
	return atomicfile.WriteJSON(filepath.Join(p.dir, recordFile), p.rec, 0o600, atomicfile.Durable)
}

// Spec is the pod with the containers that were added to it, as it was resized and changed. It
// must not be changed.
func (p *Pod) Spec() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec.spec()
}

// Written is the pod as somebody would write it: as it was given, and resized since.
// It must not be changed.
func (p *Pod) Written() (*corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rec.Resources) == 0 {
		return p.rec.Pod, nil
	}
	resized := p.rec.Pod.DeepCopy()
	p.rec.resized(resized)
	// Once through its text: quantities are then as a decoded pod has them.
	data, err := json.Marshal(resized)
	if err != nil {
		return nil, fmt.Errorf("write pod %s: %w", p.Key(), err)
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(data, out); err != nil {
		return nil, fmt.Errorf("write pod %s: %w", p.Key(), err)
	}
	return out, nil
}
