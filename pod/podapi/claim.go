package podapi

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/bulkhead-project/bulkhead/pod/podapi/fields"
)

func (d *decoder) claim(text []byte, prefix string) {
	object := &corev1.PersistentVolumeClaim{}
	before := len(d.problems)
	if !d.strictly(text, object, prefix) {
		return
	}
	fields.Refuse(object, d.reporter(errNotHonoured, prefix))
	object.APIVersion, object.Kind, object.Status = "v1", "PersistentVolumeClaim", corev1.PersistentVolumeClaimStatus{}
	c := checker{report: d.reporter(errInvalid, prefix)}
	c.objectMeta(&object.ObjectMeta)
	c.claim(&object.Spec, "spec.")
	if len(d.problems) == before && d.once(object.Kind, &object.ObjectMeta, prefix) {
		d.keepClaim(object)
	}
}

// keepClaim adds a claim, and reports whether the limit allows it.
func (d *decoder) keepClaim(claim *corev1.PersistentVolumeClaim) bool {
	if len(d.found.Claims) == maxClaims {
		d.add(0, "", errInvalid, fmt.Sprintf("there are more than %d claims", maxClaims))
		return false
	}
	d.found.Claims = append(d.found.Claims, claim)
	return true
}

// countClaims adds the size of the claims of a set's pods. Each claim also contains the labels of the set's selector.
func (d *decoder) countClaims(w workload) bool {
	each := claimCost
	if w.selector != nil {
		for key, value := range w.selector.MatchLabels {
			each += len(key) + len(value) + nodeCost
		}
	}
	replicas := 1
	if w.replicas != nil {
		replicas = int(*w.replicas)
	}
	return d.count(each * len(w.volumes) * replicas)
}

// claim sets a claim's defaults and checks it.
func (c checker) claim(spec *corev1.PersistentVolumeClaimSpec, at string) {
	if spec.VolumeMode == nil {
		mode := corev1.PersistentVolumeFilesystem
		spec.VolumeMode = &mode
	}
	oneOf(c, at+"volumeMode", *spec.VolumeMode, corev1.PersistentVolumeFilesystem, corev1.PersistentVolumeBlock)
	if len(spec.AccessModes) == 0 {
		c.fault(at+"accessModes", "is required")
	}
	for i, mode := range spec.AccessModes {
		oneOf(c, fmt.Sprintf("%saccessModes[%d]", at, i), mode, corev1.ReadWriteOnce, corev1.ReadOnlyMany, corev1.ReadWriteMany,
			corev1.ReadWriteOncePod)
	}
	if len(spec.AccessModes) > 1 && slices.Contains(spec.AccessModes, corev1.ReadWriteOncePod) {
		c.fault(at+"accessModes", "ReadWriteOncePod cannot be together with others")
	}
	many := func(mode corev1.PersistentVolumeAccessMode) bool {
		return mode == corev1.ReadWriteMany || mode == corev1.ReadOnlyMany
	}
	if *spec.VolumeMode == corev1.PersistentVolumeBlock && slices.ContainsFunc(spec.AccessModes, many) {
		c.fault(at+"volumeMode", "a disk is for one pod at a time, so ReadWriteMany and ReadOnlyMany are not possible")
	}
	size, asked := spec.Resources.Requests[corev1.ResourceStorage]
	switch {
	case !asked:
		c.fault(at+"resources.requests.storage", "is required")
	case size.Sign() <= 0:
		c.fault(at+"resources.requests.storage", "%s is not greater than 0", size.String())
	}
}

// volumeName matches the names of volumes that a pod may use as claims, including those that bulkhead run -v creates.
var volumeName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`)

func (c checker) claimSource(source *corev1.PersistentVolumeClaimVolumeSource, at string) {
	c.name(at+"claimName", source.ClaimName, func(name string) []string {
		if len(name) <= validation.DNS1123SubdomainMaxLength && volumeName.MatchString(name) {
			return nil
		}
		return validation.IsDNS1123Subdomain(name)
	})
}

// claimTemplates checks the claim templates of a set.
func (c checker) claimTemplates(templates []corev1.PersistentVolumeClaim) {
	seen := map[string]bool{}
	for i := range templates {
		t, at := &templates[i], fmt.Sprintf("spec.volumeClaimTemplates[%d].", i)
		c.name(at+"metadata.name", t.Name, validation.IsDNS1123Label)
		if seen[t.Name] {
			c.fault(at+"metadata.name", "%q appears twice", t.Name)
		}
		seen[t.Name] = true
		c.labels(at+"metadata.", t.Labels)
		c.claim(&t.Spec, at+"spec.")
	}
}

// claims adds the set's own claims to a pod, where they replace volumes with the same names. It returns the claims.
func claims(set *appsv1.StatefulSet, pod *corev1.Pod) (own []*corev1.PersistentVolumeClaim) {
	var volumes []corev1.Volume
	for i := range set.Spec.VolumeClaimTemplates {
		template := &set.Spec.VolumeClaimTemplates[i]
		claim := &corev1.PersistentVolumeClaim{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PersistentVolumeClaim"},
			ObjectMeta: metav1.ObjectMeta{
				Name: template.Name + "-" + pod.Name, Namespace: pod.Namespace,
				Labels: maps.Clone(template.Labels), Annotations: template.Annotations,
			},
			Spec: *template.Spec.DeepCopy(),
		}
		if selector := set.Spec.Selector; selector != nil && len(selector.MatchLabels) > 0 {
			if claim.Labels == nil {
				claim.Labels = map[string]string{}
			}
			maps.Copy(claim.Labels, selector.MatchLabels)
		}
		own = append(own, claim)
		volumes = append(volumes, corev1.Volume{Name: template.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name},
		}})
	}
	for _, v := range pod.Spec.Volumes {
		if !slices.ContainsFunc(volumes, func(own corev1.Volume) bool { return own.Name == v.Name }) {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
	return own
}

// devices checks the disks and block devices of a container.
func (c checker) devices(container *corev1.Container, at string) {
	paths := map[string]bool{}
	for _, mount := range container.VolumeMounts {
		paths[path.Clean(mount.MountPath)] = true
	}
	for i, device := range container.VolumeDevices {
		at := fmt.Sprintf("%svolumeDevices[%d].", at, i)
		of := slices.IndexFunc(c.pod.Volumes, func(v corev1.Volume) bool { return v.Name == device.Name })
		if of < 0 || c.pod.Volumes[of].PersistentVolumeClaim == nil && !isBlockDevice(c.pod.Volumes[of].HostPath) {
			c.fault(at+"name", "the pod has no persistentVolumeClaim and no hostPath of type BlockDevice named %q", device.Name)
		}
		if slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == device.Name }) {
			c.fault(at+"name", "%q is mounted too", device.Name)
		}
		switch where := path.Clean(device.DevicePath); {
		case device.DevicePath == "":
			c.fault(at+"devicePath", "is required")
		case !path.IsAbs(where) || where == "/":
			c.fault(at+"devicePath", "%.200q is not a valid path for a device", device.DevicePath)
		case paths[where]:
			c.fault(at+"devicePath", "%.200q appears twice", device.DevicePath)
		default:
			paths[where] = true
		}
	}
}

func isBlockDevice(source *corev1.HostPathVolumeSource) bool {
	return source != nil && source.Type != nil && *source.Type == corev1.HostPathBlockDev
}

// device checks the annotation for a block device of the host.
func (c checker) device(pod *corev1.Pod, key, volume string) {
	const field = "metadata.annotations"
	at := slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == volume })
	if at < 0 || !isBlockDevice(pod.Spec.Volumes[at].HostPath) {
		c.fault(field, "%q: the pod has no hostPath %q of type BlockDevice", key, volume)
		return
	}
	if value := pod.Annotations[key]; strings.Trim(value, "rwm") != "" || !strings.Contains(value, "r") {
		c.fault(field, "%q: %.64q is not r, rw or rwm", key, value)
	}
}
