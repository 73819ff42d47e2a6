package endpoint

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// refuse returns the field of a pod that needs Bulkhead's own engine, or an empty string.
func refuse(pod *corev1.Pod) string {
	const why = "not with --cri-endpoint"
	for key := range pod.Annotations {
		if strings.HasPrefix(key, "io.bulkhead.") {
			return fmt.Sprintf("metadata.annotations %s: %s", key, why)
		}
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		for field, set := range map[string]bool{
			"hostPath": v.HostPath != nil, "image": v.Image != nil, "persistentVolumeClaim": v.PersistentVolumeClaim != nil,
			"ephemeral": v.Ephemeral != nil, "csi": v.CSI != nil,
			"emptyDir.medium":    v.EmptyDir != nil && v.EmptyDir.Medium != corev1.StorageMediumDefault,
			"emptyDir.sizeLimit": v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil && !v.EmptyDir.SizeLimit.IsZero(),
		} {
			if set {
				return fmt.Sprintf("spec.volumes[%d].%s: %s", i, field, why)
			}
		}
	}
	for list, all := range map[string][]corev1.Container{"containers": pod.Spec.Containers, "initContainers": pod.Spec.InitContainers} {
		for i := range all {
			if len(all[i].VolumeDevices) > 0 {
				return fmt.Sprintf("spec.%s[%d].volumeDevices: %s", list, i, why)
			}
			for j, m := range all[i].VolumeMounts {
				// A container could create links there that lead the runtime to any path of the host.
				if m.SubPath != "" || m.SubPathExpr != "" {
					return fmt.Sprintf("spec.%s[%d].volumeMounts[%d].subPath: %s", list, i, j, why)
				}
			}
		}
	}
	return ""
}
