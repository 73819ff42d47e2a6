package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"
	storagehelper "k8s.io/component-helpers/storage/volume"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// resolve finds the PersistentVolume of a pod's volume in the API server. Its errors are a kubelet's.
func (v *Volumes) resolve(ctx context.Context, pod *corev1.Pod, one *corev1.Volume) (record, error) {
	if inline := one.CSI; inline != nil {
		return record{ReadOnly: inline.ReadOnly != nil && *inline.ReadOnly}, nil
	}
	name, readOnly := ephemeral.VolumeClaimName(pod, one), false
	if own := one.PersistentVolumeClaim; own != nil {
		name, readOnly = own.ClaimName, own.ReadOnly
	}
	claim, err := v.claim(ctx, pod, one, name)
	if err != nil {
		return record{}, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	pv, err := v.persistentVolume(ctx, claim)
	if err != nil {
		return record{}, fmt.Errorf("error processing PVC %s/%s: %w", pod.Namespace, name, err)
	}
	r := record{PV: trimmed(pv), ReadOnly: readOnly || onlyRead(pv)}
	if r.Block, err = block(pod, one.Name, pv); err != nil {
		return record{}, err
	}
	return r, nil
}

// Reasons for which a pod waits for its claim.
var (
	errNotBound = errors.New("PVC is not bound")
	errAlone    = errors.New("there is no API server")
)

// claim returns a claim if it is bound. A node may get its pods' claims, but may not list or watch them.
func (v *Volumes) claim(ctx context.Context, pod *corev1.Pod, one *corev1.Volume, name string) (*corev1.PersistentVolumeClaim, error) {
	if v.k.o.Client == nil {
		return nil, errAlone
	}
	claim, err := v.k.o.Client.CoreV1().PersistentVolumeClaims(pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to fetch PVC from API server: %w", err)
	}
	if one.Ephemeral != nil {
		if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
			return nil, err
		}
	}
	switch {
	case claim.DeletionTimestamp != nil:
		return nil, errors.New("PVC is being deleted")
	case claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "":
		return nil, errNotBound
	}
	return claim, nil
}

// persistentVolume returns the volume that a claim is bound to.
func (v *Volumes) persistentVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	pv, err := v.k.o.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("failed to get PV from API server: %w", err)
	}
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		return nil, fmt.Errorf("PV %s is bound to another claim, not to %s", pv.Name, claim.UID)
	}
	node := v.k.o.Node()
	if node == nil {
		return nil, errors.New("the Node is not registered yet")
	}
	if err := storagehelper.CheckNodeAffinity(pv, node.Labels); err != nil {
		return nil, fmt.Errorf("MountVolume.NodeAffinity check failed for volume %q : %w", pv.Name, err)
	}
	return pv, nil
}

// onlyRead reports whether a PersistentVolume allows only reading.
func onlyRead(pv *corev1.PersistentVolume) bool {
	modes := pv.Spec.AccessModes
	return len(modes) > 0 && !slices.ContainsFunc(modes, func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany })
}

// onePod reports whether only one pod may use a PersistentVolume.
func onePod(pv *corev1.PersistentVolume) bool {
	return slices.Contains(pv.Spec.AccessModes, corev1.ReadWriteOncePod)
}

// block reports whether a volume is a device. It returns an error if the pod uses a device as a directory or the
// reverse.
func block(pod *corev1.Pod, name string, pv *corev1.PersistentVolume) (is bool, err error) {
	is = pv.Spec.VolumeMode != nil && *pv.Spec.VolumeMode == corev1.PersistentVolumeBlock
	switch mounted, mapped := uses(pod, name); {
	case is && mounted:
		err = fmt.Errorf("volume %s has volumeMode Block, but is specified in volumeMounts", name)
	case !is && mapped:
		err = fmt.Errorf("volume %s has volumeMode Filesystem, but is specified in volumeDevices", name)
	}
	return is, err
}

// used reports whether a container uses a volume.
func used(pod *corev1.Pod, name string) bool {
	mounted, mapped := uses(pod, name)
	return mounted || mapped
}

// uses reports whether a container mounts a volume, and whether one uses it as a device.
func uses(pod *corev1.Pod, name string) (mounted, mapped bool) {
	for c := range podspec.All(&pod.Spec) {
		mounted = mounted || slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == name })
		mapped = mapped || slices.ContainsFunc(c.VolumeDevices, func(d corev1.VolumeDevice) bool { return d.Name == name })
	}
	for i := range pod.Spec.EphemeralContainers { // these have no devices
		mounts := pod.Spec.EphemeralContainers[i].VolumeMounts
		mounted = mounted || slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.Name == name })
	}
	return mounted, mapped
}
