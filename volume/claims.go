package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Place is the place on the host of a volume from a claim or driver.
type Place struct {
	// Path is a directory or, for a Block or Disk, a block device.
	Path string `json:"path"`
	// Disk means that the device has an ext4 file system, which the pod's VM mounts.
	Disk bool `json:"disk,omitempty"`
	// Block means that containers get the device and not the files on it.
	Block bool `json:"block,omitempty"`
	// ReadOnly means that no container may write to it.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Claims are one pod's volumes from PersistentVolumeClaims, generic ephemeral volumes or a CSI driver (Claimed). The
// protocol: any number of Mount, at least one before each VM of the pod. When the pod has no VM and will not get one,
// Unmount until it succeeds. Implementations are safe for concurrent use.
type Claims interface {
	// Mount mounts all those volumes, unless they are mounted, and returns their places on the host, by name in the
	// pod. The error has a kubelet's message; the other volumes stay mounted. The pod must not be changed during the
	// call.
	Mount(ctx context.Context, pod *corev1.Pod) (map[string]Place, error)
	// Places returns the mounted volumes, including those of an earlier process. The result is not nil.
	Places() map[string]Place
	// Changed returns a channel that is closed when a failed Mount may succeed. Call it before Mount to miss no change.
	Changed() <-chan struct{}
	// Unmount undoes all work of Mount, including that of an earlier process. It succeeds if no volume is mounted.
	Unmount(ctx context.Context) error
	// Release calls Unmount in the background until it succeeds.
	Release()
}

// Claimed reports whether a volume is one of Claims.
func Claimed(source *corev1.VolumeSource) bool {
	return source.PersistentVolumeClaim != nil || source.Ephemeral != nil || source.CSI != nil
}

// HasClaimed reports whether a pod has such volumes.
func HasClaimed(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if Claimed(&pod.Spec.Volumes[i].VolumeSource) {
			return true
		}
	}
	return false
}
