package eviction

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// limited reports whether a pod has a limit of ephemeral storage or of an emptyDir.
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

// overLimit evicts the pods that exceed their limits of ephemeral storage, and reports whether there were any. It stops
// when ctx ends.
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

// sizeLimit returns the limit of an emptyDir, or nil.
func sizeLimit(v *corev1.Volume) *resource.Quantity {
	if v.EmptyDir == nil || v.EmptyDir.SizeLimit == nil || v.EmptyDir.SizeLimit.Sign() != 1 {
		return nil
	}
	return v.EmptyDir.SizeLimit
}

// Signals of a pod's own limits, with a kubelet's names.
const (
	emptyDirLimit  Signal = "emptydirfs.limit"
	containerLimit Signal = "ephemeralcontainerfs.limit"
	podLimit       Signal = "ephemeralpodfs.limit"
)

// exceeded returns the limit that a pod exceeds and the message, or an empty message. The order is a kubelet's: an
// emptyDir, all containers together if each has a limit, one container.
func exceeded(pod *corev1.Pod, u Usage) (limit Signal, why string) {
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if most := sizeLimit(v); most != nil && int64(u.Volumes[v.Name]) > most.Value() {
			return emptyDirLimit, fmt.Sprintf("Usage of EmptyDir volume %q exceeds the limit %q. ", v.Name, most)
		}
	}
	sum := resource.NewQuantity(0, resource.BinarySI)
	all := true // all containers have a limit
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

// free frees the disk of terminated pods. If that fails, no pod is evicted, because the disk of the last evicted pod
// may not be free yet. After some failures in a row, pods are evicted nevertheless.
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
