package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Resize gives a pod that the node has taken the resources that it asks for now. Where they do not fit it
// keeps its own, and the reason is a kubelet's: Infeasible if the node can never have them, Deferred if others
// have them now. An empty reason is a resize that fits.
func (a *Admission) Resize(pod *corev1.Pod) (reason, message string) {
	node := a.node()
	a.mu.Lock()
	defer a.mu.Unlock()
	want := requests(pod)
	if node != nil {
		used := a.used(pod.UID)
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			asked, has, taken, own := want[name], node.Status.Allocatable[name], used[name], a.given[pod.UID][name]
			if asked.Cmp(own) <= 0 {
				continue
			}
			if asked.Cmp(has) > 0 {
				return corev1.PodReasonInfeasible, fmt.Sprintf(
					"Node didn't have enough capacity: %s, requested: %s, capacity: %s", name, &asked, &has)
			}
			total := taken.DeepCopy()
			total.Add(asked)
			if total.Cmp(has) > 0 {
				return corev1.PodReasonDeferred, fmt.Sprintf(
					"Node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s", name, &asked, &taken, &has)
			}
		}
	}
	a.given[pod.UID] = want
	return "", ""
}
