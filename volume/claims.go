package volume

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// Place is where on the host a volume lies that is a claim's, or a driver's.
type Place struct {
	// Path is a directory's or, of a Block or a Disk, a block device's.
	Path string `json:"path"`
	// Disk says that the device has an ext4 on it, which the pod's VM mounts.
	Disk bool `json:"disk,omitempty"`
	// Block says that containers get the device and not the files on it.
	Block bool `json:"block,omitempty"`
	// ReadOnly says that no container may write to it.
	ReadOnly bool `json:"readOnly,omitempty"`
}

// Claims are the volumes of one pod that are PersistentVolumeClaims, generic ephemeral volumes or a CSI driver's
// (Claimed). The protocol: any number of Mount, at least one before each VM of the pod; when the pod has no VM any more
// and will have none, Unmount until it succeeds. Its methods may be called at once.
type Claims interface {
	// Mount has all those volumes be there, and returns where on the host each lies, by its name in the pod. It does
	// nothing for one that is there. The error tells in a kubelet's words why one is not; the others stay
	// mounted. The pod must not be changed meanwhile.
	Mount(ctx context.Context, pod *corev1.Pod) (map[string]Place, error)
	// Places are those that Mount has mounted, in an earlier process as well. It is not nil.
	Places() map[string]Place
	// Changed is closed when Mount may succeed now that failed. Ask for it before Mount, so that nothing is missed.
	Changed() <-chan struct{}
	// Unmount undoes all that Mount has done or begun, in an earlier process as well. It succeeds where nothing is left.
	Unmount(ctx context.Context) error
	// Release has Unmount be called until it succeeds, beside the caller.
	Release()
}

// Claimed tells whether a volume is one of Claims.
func Claimed(source *corev1.VolumeSource) bool {
	return source.PersistentVolumeClaim != nil || source.Ephemeral != nil || source.CSI != nil
}

// HasClaimed tells whether a pod has such volumes.
func HasClaimed(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if Claimed(&pod.Spec.Volumes[i].VolumeSource) {
			return true
		}
	}
	return false
}
