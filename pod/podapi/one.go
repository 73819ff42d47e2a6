package podapi

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// One reads a document (YAML or JSON) with exactly one v1 Pod, as a kubelet reads its files. The pod is decoded
// strictly, defaulted and validated, and must have a name. Fields that Bulkhead does not honour are accepted, because a
// node checks them at admission. The error is a FieldErrors.
func One(name string, data []byte) (*corev1.Pod, error) {
	d := &decoder{places: map[string]string{}, skipped: map[string]*skipped{}, unjudged: true}
	d.read(File{Name: name, Data: data})
	if pods := d.found.Pods; len(d.problems) == 0 && (len(pods) != 1 || d.objects != 1) {
		d.before, d.root = 0, nil
		d.add(0, "", errSyntax, fmt.Sprintf("it must contain exactly one pod, but has %d objects, %d of them pods", d.objects, len(pods)))
	}
	if len(d.problems) > 0 {
		return nil, d.problems
	}
	if pod := d.found.Pods[0]; pod.GenerateName == "" {
		return pod, nil
	}
	d.add(0, "metadata.generateName", errInvalid, "a pod in a file needs a name")
	return nil, d.problems
}
