package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/pod/manager"
	"github.com/bulkhead-project/bulkhead/pod/podapi"
)

// Write writes a pod in the form that users write: without fields that Bulkhead has set and without defaults.
// Decoding the result gives the same pod. Its ConfigMaps come first, and with secrets its Secrets.
func Write(given *corev1.Pod, objects manager.Objects, secrets bool) (api.Manifests, error) {
	var out api.Manifests
	pod, err := written(given)
	if err != nil {
		return out, err
	}
	add := func(object metav1.Object, kind string) error {
		data, err := json.Marshal(object)
		if err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		var fields map[string]any
		if err := json.Unmarshal(data, &fields); err != nil {
			return fmt.Errorf("generate: %w", err)
		}
		meta := map[string]any{"name": object.GetName()}
		if object.GetNamespace() != metav1.NamespaceDefault {
			meta["namespace"] = object.GetNamespace()
		}
		fields["apiVersion"], fields["kind"], fields["metadata"] = "v1", kind, meta
		out.Documents = append(out.Documents, fields)
		return nil
	}
	for _, c := range objects.ConfigMaps {
		if err := add(c, "ConfigMap"); err != nil {
			return out, err
		}
	}
	for _, s := range objects.Secrets {
		if !secrets {
			out.Secrets = append(out.Secrets, s.Name)
		} else if err := add(s, "Secret"); err != nil {
			return out, err
		}
	}
	out.Documents = append(out.Documents, pod)
	return out, nil
}

// written removes all fields of a pod that do not change the decoded pod.
func written(p *corev1.Pod) (map[string]any, error) {
	want := plainPod(p)
	data, err := json.Marshal(want)
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	same := func() bool {
		data, err := json.Marshal(fields)
		if err != nil {
			return false
		}
		pods, err := podapi.Decode("generate", data)
		return err == nil && len(pods) == 1 && reflect.DeepEqual(plainPod(pods[0]), want)
	}
	if !same() {
		return nil, fmt.Errorf("generate: pod %s/%s cannot be written so that it is read as the same", p.Namespace, p.Name)
	}
	// Fields that users always write stay.
	keep := map[string]bool{
		"apiVersion": true, "kind": true, "metadata": true, "name": true, "spec": true, "containers": true, "image": true, "emptyDir": true,
	}
	leaveOut(fields, keep, same)
	return fields, nil
}

// plainPod returns a pod with only its metadata and specification.
func plainPod(p *corev1.Pod) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, Labels: p.Labels, Annotations: p.Annotations,
		},
		Spec: *p.Spec.DeepCopy(),
	}
}

// leaveOut removes unnecessary fields, the largest parts first.
func leaveOut(fields map[string]any, keep map[string]bool, same func() bool) {
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		value := fields[key]
		if !keep[key] {
			delete(fields, key)
			if same() {
				continue
			}
			fields[key] = value
		}
		switch value := value.(type) {
		case map[string]any:
			leaveOut(value, keep, same)
		case []any:
			for _, item := range value {
				if m, ok := item.(map[string]any); ok {
					leaveOut(m, keep, same)
				}
			}
		}
	}
}
