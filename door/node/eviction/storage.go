package eviction

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// limited tells whether one of the pods has a limit of ephemeral storage, or of an emptyDir.
func limited(pods []*corev1.Pod) bool {
	for _, pod := range pods {
		for i := range pod.Spec.Volumes {
			if sizeLimit(&pod.Spec.Volumes[i]) != nil {
				return true
			}
		}
		for c := range podspec.All(&pod.Spec) {
			if limit := c.Resources.Limits[corev1.ResourceEphemeralStorage]; !limit.IsZero() {
				return true
			}
		}
	}
	return false
}

// overLimit ends the pods that have written more than their limits of ephemeral storage, and tells whether there
// was one. With the end of ctx it ends no further one.
func (m *Manager) overLimit(ctx context.Context, pods []*corev1.Pod, usage map[types.UID]Usage) (found bool) {
	for _, pod := range pods {
		if ctx.Err() != nil {
			return true
		}
		if limit, why := exceeded(pod, usage[pod.UID]); why != "" && !Critical(pod) {
			m.evict(ctx, pod, limit, why)
			found = true
		}
	}
	return found
}

// sizeLimit is that of an emptyDir, nil for none.
func sizeLimit(v *corev1.Volume) *resource.Quantity {
	if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() != 1 {
		return nil
	}
	return v.EmptyDir.SizeLimit
}

// The signals of limits of pods' own, as a kubelet calls them.
const (
	emptyDirLimit  Signal = "emptydirfs.limit"
	containerLimit Signal = "ephemeralcontainerfs.limit"
	podLimit       Signal = "ephemeralpodfs.limit"
)

// exceeded is why a pod has written too much, empty for one that has not, and which of its limits that is: that of an
// emptyDir, that of all containers together where each has one, or that of a container, in a kubelet's order.
func exceeded(pod *corev1.Pod, u Usage) (limit Signal, why string) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if most := sizeLimit(v); most != nil && int64(u.Volumes[v.Name]) > most.Value() {
			return emptyDirLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, most)
		}
	}
	sum := resource.NewQuantity(0, resource.BinarySI)
	all := true // have a limit
	for c, kind := range podspec.All(&pod.Spec) {
		limit := c.Resources.Limits[corev1.ResourceEphemeralStorage]
		if limit.IsZero() {
			all = all && kind == podspec.Initial
		} else if kind != podspec.Initial {
			sum.Add(limit)
		}
	}
	if all && sum.Sign() > 0 && int64(u.Disk) > sum.Value() {
		return podLimit, fmt.Sprintf("Pod ephemeral local storage usage exceeds the total limit of containers %s. ", sum)
	}
	for c := range podspec.All(&pod.Spec) {
		limit := c.Resources.Limits[corev1.ResourceEphemeralStorage]
		if !limit.IsZero() && int64(u.Written[c.Name]) > limit.Value() {
			return containerLimit, fmt.Sprintf("Container %s exceeded its local ephemeral storage limit %q. ", c.Name, &limit)
		}
	}
	return "", ""
}

// free frees what pods that have ended hold. Where that fails no pod is evicted: what the last one held may be on the
// disk yet, and one after the other would go in vain. A pod that can never be freed does not keep it off for ever.
func (m *Manager) free(ctx context.Context) error {
	err := m.o.Free(ctx)
	if err == nil {
		m.unfreed = 0
		return nil
	}
	if m.unfreed++; m.unfreed < patience {
		return fmt.Errorf("free the disk of terminated pods before evicting others: %w", err)
	}
	m.unfreed = 0
	m.o.Logger.Warn("terminated pods still hold disk, evicting others", "error", err)
	return nil
}
