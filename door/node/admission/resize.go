package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resize gives a pod that the node has taken the resources that it asks for now. Where they do not fit it
// keeps its own, and the reason is a kubelet's: Infeasible if the node can never have them, Deferred if others
// have them now. An empty reason is a resize that fits. Of a resource of which the pod asks for less it keeps
// what it has until Hold, for its VM has that still. A pod that was released is given nothing.
func (a *Admission) Resize(pod *corev1.Pod) (reason, message string) {
	node := a.node()
	a.mu.Lock()
	defer a.mu.Unlock()
	given, taken := a.given[pod.UID]
	if !taken {
		return "", ""
	}
	want := Requests(pod)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		asked, own := want[name], given[name]
		if asked.Cmp(own) <= 0 {
			want[name] = own
			continue
		}
		if node == nil {
			continue
		}
		if reason, message := a.room(pod, node, name, asked); reason != "" {
			return reason, message
		}
	}
	a.given[pod.UID] = want
	return "", ""
}

// room tells why the node cannot give a pod so much of a resource, empty for nothing. It is called with mu held.
func (a *Admission) room(pod *corev1.Pod, node *corev1.Node, name corev1.ResourceName, asked resource.Quantity) (reason, message string) {
	has, used := node.Status.Allocatable[name], a.used(itself(pod))[name]
	if asked.Cmp(has) > 0 {
		return corev1.PodReasonInfeasible, fmt.Sprintf(
			"Node didn't have enough capacity: %s, requested: %s, capacity: %s", name, &asked, &has)
	}
	total := used.DeepCopy()
	total.Add(asked)
	if total.Cmp(has) > 0 {
		return corev1.PodReasonDeferred, fmt.Sprintf(
			"Node didn't have enough resource: %s, requested: %s, used: %s, capacity: %s", name, &asked, &used, &has)
	}
	return "", ""
}

// Hold has a pod have what its specification says, and no more: its resize is done, or was given up. A pod that
// was released is given nothing.
func (a *Admission) Hold(pod *corev1.Pod) {
	a.mu.Lock()
	_, taken := a.given[pod.UID]
	if taken {
		a.given[pod.UID] = Requests(pod)
	}
	freed := a.freed
	a.mu.Unlock()
	if taken && freed != nil {
		freed()
	}
}
