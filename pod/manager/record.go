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

// Record is the persistent state of a pod. The file has mode 0600, because it contains environment variables.
type Record struct {
	// Pod is the pod as it was added, defaulted and validated, with a UID.
	Pod *corev1.Pod `json:"pod"`
	// Network, Template, Warm, Accel, Size and Ports are the fields of pod.Options with these names.
	Network  string                    `json:"network,omitempty"`
	Template string                    `json:"template,omitempty"`
	Warm     string                    `json:"warm,omitempty"`
	Accel    string                    `json:"accel,omitempty"`
	Size     runtimev1.Size            `json:"size,omitzero"`
	Ports    []*runtimeapi.PortMapping `json:"ports,omitempty"`
	// Since is the time of the request for the current run.
	Since time.Time `json:"since,omitzero"`
	// Begun: the pod's turn in its Job has come.
	Begun bool `json:"begun,omitempty"`
	// JobFailed: its turn will not come.
	JobFailed bool `json:"jobFailed,omitempty"`
	// Foreground: the pod ends with the client that ran it.
	Foreground bool `json:"foreground,omitempty"`
	// Stopping: a stop was requested.
	Stopping bool `json:"stopping,omitempty"`
	// Grace is the shortest requested grace, in seconds, and EndBy is its end.
	Grace *int64    `json:"grace,omitempty"`
	EndBy time.Time `json:"endBy,omitzero"`
	// Remove: the pod is removed after its end.
	Remove bool `json:"remove,omitempty"`
	// Ended is the final status; nil before the end.
	Ended *corev1.PodStatus `json:"ended,omitempty"`
	// Earlier is the field of pod.Options.
	Earlier string `json:"earlier,omitempty"`
	// Ephemeral are the containers that Debug has added.
	Ephemeral []corev1.EphemeralContainer `json:"ephemeral,omitempty"`
	// Resources are the resized resources of containers, by name. Generation counts the resizes.
	Resources  map[string]corev1.ResourceRequirements `json:"resources,omitempty"`
	Generation int64                                  `json:"generation,omitempty"`
	// Before are the resources of all containers before an unfinished resize; nil for none.
	Before map[string]corev1.ResourceRequirements `json:"before,omitempty"`
	// Changed are other changes since the pod was added; nil for none.
	Changed *Changed `json:"changed,omitempty"`
	// Eviction is why the pod was evicted; nil if it was not.
	Eviction *Eviction `json:"verdict,omitempty"`
}

// Changed are the changes to a running pod beside its resources.
type Changed struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Deadline    *int64            `json:"deadline,omitempty"` // activeDeadlineSeconds
	// Images are the images of all containers, by name.
	Images map[string]string `json:"images,omitempty"`
}

// leastGrace is the minimum grace, in seconds, when the next manager continues a stop: the containers may not have been
// signalled before.
const leastGrace = 2

// graceLeft returns the rest of the pod's grace, in seconds; nil if no stop was requested.
func (r *Record) graceLeft() *int64 {
	if r.Grace == nil {
		return nil
	}
	left := int64(math.Ceil(time.Until(r.EndBy).Seconds()))
	return new(min(max(left, leastGrace), *r.Grace)) // at most the whole grace: the clock may have been set back
}

// removesItself reports whether the manager, and not a client, removes the pod after its end.
func (r *Record) removesItself() bool { return r.Remove && !r.Foreground }

// spec returns the pod with its ephemeral containers, resizes and other changes.
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

// resized applies the resizes to p.
func (r *Record) resized(p *corev1.Pod) {
	setResources(r.Resources, p)
	p.Generation = max(p.Generation, r.Generation)
}

// beforeResize returns the pod as it was before the unfinished resize.
func (r *Record) beforeResize() *corev1.Pod {
	p := r.spec()
	if r.Before != nil {
		p = p.DeepCopy()
		setResources(r.Before, p)
	}
	return p
}

// begins saves the containers' resources before a resize.
func (r *Record) begins(before *corev1.Pod) {
	if r.Before != nil {
		return // keep the resources from before the resize that this one replaces
	}
	r.Before = map[string]corev1.ResourceRequirements{}
	for c := range podspec.All(&before.Spec) {
		r.Before[c.Name] = *c.Resources.DeepCopy()
	}
}

// setResources sets the named resources of the containers of a pod.
func setResources(resources map[string]corev1.ResourceRequirements, p *corev1.Pod) {
	for c := range podspec.All(&p.Spec) {
		if own, found := resources[c.Name]; found {
			c.Resources = *own.DeepCopy()
		}
	}
}

// save writes the record. The caller holds the lock or is the only user of p.
func (p *Pod) save() error {
	return atomicfile.WriteJSON(filepath.Join(p.dir, recordFile), p.rec, 0o600, atomicfile.Durable)
}

// Spec returns the pod with its ephemeral containers, resizes and other changes. The caller must not change it.
func (p *Pod) Spec() *corev1.Pod {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec.spec()
}

// Written returns the pod as in a file: as it was added, with its resizes. The caller must not change it.
func (p *Pod) Written() (*corev1.Pod, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.rec.Resources) == 0 {
		return p.rec.Pod, nil
	}
	resized := p.rec.Pod.DeepCopy()
	p.rec.resized(resized)
	// Encode and decode it, so that quantities have the form of a decoded pod.
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
