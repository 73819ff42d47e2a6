package podspec

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestEvery: containers come in start order with their kinds, as pointers into the specification.
func TestEvery(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	spec := &corev1.PodSpec{
		InitContainers:      []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}},
		Containers:          []corev1.Container{{Name: "main"}, {Name: "more"}},
		EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}},
	}
	want := []string{"init", "side", "main", "more", "debug"}
	kinds := []Kind{Initial, Sidecar, Regular, Regular, Ephemeral}
	for all := len(want); all > 0; all-- {
		var names []string
		for c, kind := range Every(spec) {
			if kind != kinds[len(names)] {
				t.Errorf("%s is of kind %d", c.Name, kind)
			}
			if names = append(names, c.Name); len(names) == all {
				break
			}
		}
		if !slices.Equal(names, want[:all]) {
			t.Errorf("got %v, want %v", names, want[:all])
		}
	}
	if Find(spec, "absent") != nil {
		t.Error("Find returned an absent container")
	}
	Find(spec, "debug").Image = "image"
	if got := spec.EphemeralContainers[0].Image; got != "image" {
		t.Errorf("a copy was changed; the image is %q", got)
	}
}
