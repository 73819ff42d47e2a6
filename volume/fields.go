package volume

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Field returns a field of the pod's metadata as in the downward API. known is false for other fields.
func Field(pod *corev1.Pod, path string) (text string, known bool) {
	if key, ok := subscript(path, "metadata.labels"); ok {
		return pod.Labels[key], true
	}
	if key, ok := subscript(path, "metadata.annotations"); ok {
		return pod.Annotations[key], true
	}
	switch path {
	case "metadata.name":
		return pod.Name, true
	case "metadata.namespace":
		return pod.Namespace, true
	case "metadata.uid":
		return string(pod.UID), true
	case "metadata.labels":
		return formatMap(pod.Labels), true
	case "metadata.annotations":
		return formatMap(pod.Annotations), true
	}
	return "", false
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

// Resource returns a container's limit or request, in units of the reference's divisor, rounded up. allocatable
// replaces an unset limit.
func Resource(container *corev1.Container, ref *corev1.ResourceFieldSelector, allocatable corev1.ResourceList) (string, error) {
	list, name, _ := strings.Cut(ref.Resource, ".")
	resourceName := corev1.ResourceName(name)
	known := resourceName == corev1.ResourceCPU || resourceName == corev1.ResourceMemory ||
		resourceName == corev1.ResourceEphemeralStorage || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
	var quantity resource.Quantity
	switch {
	case !known:
		return "", fmt.Errorf("unsupported container resource: %s", ref.Resource)
	case list == "requests":
		quantity = container.Resources.Requests[resourceName]
	case list == "limits":
		limit, set := container.Resources.Limits[resourceName]
		if !set || limit.IsZero() {
			limit = allocatable[resourceName]
		}
		quantity = limit
	default:
		return "", fmt.Errorf("unsupported container resource: %s", ref.Resource)
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if resourceName == corev1.ResourceCPU {
		return divide(quantity.MilliValue(), divisor.MilliValue()), nil
	}
	return divide(quantity.Value(), divisor.Value()), nil
}

func divide(value, divisor int64) string {
	return strconv.FormatInt(int64(math.Ceil(float64(value)/float64(divisor))), 10)
}
