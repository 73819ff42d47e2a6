package admission

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resize reserves the resources that an admitted pod requests now. An empty reason means that they fit. Otherwise the
// pod keeps its old ones, and the reason is a kubelet's: Infeasible if the node is too small, Deferred if other pods
// have the resources now. A smaller request frees resources only in Hold, because until then the VM still has them. A
// released pod gets nothing.
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

// room returns why the node cannot give a pod so much of a resource, or an empty reason. The caller holds mu.
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

// Hold sets a pod's resources to those of its specification, after a resize that succeeded or was given up. A released
// pod gets nothing.
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
