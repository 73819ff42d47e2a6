package object

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// resources returns the capacity and the allocatable resources of a Node. They are the measured ones plus extended
// resources that other clients added to the capacity. Those are fully allocatable, as with a kubelet. A resource that
// could not be measured keeps its last value.
func resources(node, measured *corev1.NodeStatus) (all, forPods corev1.ResourceList) {
	all, forPods = corev1.ResourceList{}, corev1.ResourceList{}
	maps.Copy(all, measured.Capacity)
	maps.Copy(forPods, measured.Allocatable)
	for name, has := range node.Capacity {
		_, own := all[name]
		switch {
		case own:
		case strings.Contains(string(name), "/"): // an extended resource
			all[name], forPods[name] = has, has
		case name == corev1.ResourceEphemeralStorage:
			all[name], forPods[name] = has, node.Allocatable[name]
		}
	}
	return all, forPods
}
