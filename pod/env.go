package pod

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// variable is one entry of a container's environment.
type variable struct{ name, value string }

// environment resolves a container's variables in order: each value may refer
// to those before it.
func environment(pod *corev1.Pod, container *corev1.Container, ips []string, hostIP string) ([]variable, error) {
	var out []variable
	values := make(map[string]string)
	lookup := func(name string) (string, bool) {
		value, known := values[name]
		return value, known
	}
	for _, entry := range container.Env {
		value := expand(entry.Value, lookup)
		if from := entry.ValueFrom; from != nil {
			if from.FieldRef == nil {
				return nil, fmt.Errorf("environment variable %s: only fieldRef is honoured", entry.Name)
			}
			field, err := fieldValue(pod, from.FieldRef.FieldPath, ips, hostIP)
			if err != nil {
				return nil, fmt.Errorf("environment variable %s: %w", entry.Name, err)
			}
			value = field
		}
		values[entry.Name] = value
		out = append(out, variable{entry.Name, value})
	}
	return out, nil
}

// fieldValue is the text of a field of the pod, as the downward API has it for
// environment variables.
func fieldValue(pod *corev1.Pod, path string, ips []string, hostIP string) (string, error) {
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], nil
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], nil
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return hostIP, nil
	case "status.podIP":
		if len(ips) == 0 {
			return "", nil
		}
		return ips[0], nil
	case "status.podIPs":
		return strings.Join(ips, ","), nil
	}
	return "", fmt.Errorf("field path %q is not supported", path)
}

// subscript splits prefix['key'].
func subscript(path, prefix string) (key string, ok bool) {
	rest, ok := strings.CutPrefix(path, prefix+"['")
	if !ok {
		return "", false
	}
	return strings.CutSuffix(rest, "']")
}

func formatMap(values map[string]string) string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, key+"="+strconv.Quote(values[key]))
	}
	return strings.Join(lines, "\n")
}
