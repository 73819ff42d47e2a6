// Package resize has the rules and the steps of a Pod's resize.
package resize

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Container returns the named container if it can be resized while the pod runs, which is a regular one or a sidecar,
// else nil.
func Container(spec *corev1.PodSpec, name string) *corev1.Container {
	for c, kind := range podspec.All(spec) {
		if c.Name == name && kind != podspec.Initial {
			return c
		}
	}
	return nil
}

// Check returns an error for a resize that the API server does not allow.
func Check(old, next corev1.ResourceRequirements) error {
	for _, list := range []struct {
		kind      string
		old, next corev1.ResourceList
	}{{"limit", old.Limits, next.Limits}, {"request", old.Requests, next.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.next)) {
			quantity := list.next[name]
			have, set := list.old[name]
			if quantity.Sign() < 0 {
				return fmt.Errorf("the %s of %s is negative", list.kind, name)
			}
			if (!set || have.Cmp(quantity) != 0) && name != corev1.ResourceCPU && name != corev1.ResourceMemory {
				return fmt.Errorf("only cpu and memory resources are mutable, not %s", name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(list.old)) {
			if _, set := list.next[name]; !set {
				return fmt.Errorf("the %s of %s cannot be removed", list.kind, name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(next.Requests)) {
		request := next.Requests[name]
		if limit, set := next.Limits[name]; set && request.Cmp(limit) > 0 {
			return fmt.Errorf("the request of %s, %s, is more than the limit %s", name, request.String(), limit.String())
		}
	}
	return nil
}
