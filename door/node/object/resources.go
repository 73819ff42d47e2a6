package object

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// resources are the capacity of a Node and what of it is allocatable: what was measured, and the extended resources that others have
// put into the capacity, all of which is allocatable then, as with a kubelet. What was not measured stays as it was told last.
func resources(node, measured *corev1.NodeStatus) (all, forPods corev1.ResourceList) {
	all, forPods = corev1.ResourceList{}, corev1.ResourceList{}
	maps.Copy(all, measured.Capacity)
	maps.Copy(forPods, measured.Allocatable)
	for name, has := range node.Capacity {
		_, own := all[name]
		switch {
		case own:
		case strings.Contains(string(name), "/"): // an extended one
			all[name], forPods[name] = has, has
		case name == corev1.ResourceEphemeralStorage:
			all[name], forPods[name] = has, node.Allocatable[name]
		}
	}
	return all, forPods
}
