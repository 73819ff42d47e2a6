package manifests

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// decode returns the pod of a file as it runs on a node. The node's name is appended to its name. Its UID is a hash of
// the node's name, the file's name and its contents. It tolerates all NoExecute taints.
func decode(path, node string, data []byte) (*corev1.Pod, error) {
	pod, err := podapi.One(path, data)
	if err != nil {
		return nil, err
	}
	if err := selfContained(pod); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if pod.UID, err = hash(path, node, data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	pod.Name += "-" + node
	if faults := validation.IsDNS1123Subdomain(pod.Name); len(faults) > 0 {
		return nil, fmt.Errorf("%s: name %q of the pod: %s", path, pod.Name, faults[0])
	}
	pod.Spec.NodeName = node
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[control.SourceAnnotation] = "file"
	pod.Annotations[control.HashAnnotation] = string(pod.UID)
	pod.Annotations[control.SeenAnnotation] = time.Now().UTC().Format(time.RFC3339Nano)
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{
		Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
	})
	return pod, nil
}

// hash returns the UID of a pod. Comments and the order of fields do not change it.
func hash(path, node string, data []byte) (types.UID, error) {
	said, err := yaml.YAMLToJSON(data)
	if err != nil { // JSON has escapes that YAML lacks
		compact := &bytes.Buffer{}
		if json.Compact(compact, data) != nil {
			return "", err
		}
		said = compact.Bytes()
	}
	h := sha256.New()
	for _, part := range []string{node, path, string(said)} {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return types.UID(hex.EncodeToString(h.Sum(nil)[:16])), nil
}

// selfContained rejects references to objects of an API server. A static pod must run without an API server, and a node
// may not read these objects on its behalf.
func selfContained(pod *corev1.Pod) error {
	for field, set := range map[string]bool{
		"metadata.ownerReferences": len(pod.OwnerReferences) > 0, "metadata.finalizers": len(pod.Finalizers) > 0,
		"spec.ephemeralContainers": len(pod.Spec.EphemeralContainers) > 0, "spec.schedulingGates": len(pod.Spec.SchedulingGates) > 0,
	} {
		if set {
			return fmt.Errorf("%s: must not be set in a static pod", field)
		}
	}
	for _, key := range []string{corev1.MirrorPodAnnotationKey, control.SourceAnnotation, control.HashAnnotation, control.SeenAnnotation} {
		if _, set := pod.Annotations[key]; set {
			return fmt.Errorf("metadata.annotations: %s must not be set (the node sets it)", key)
		}
	}
	if what := refersTo(pod); what != "" {
		return fmt.Errorf("static pods may not reference %s", what)
	}
	return nil
}
