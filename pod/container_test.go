package pod

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

func TestContainersOf(t *testing.T) {
	pod := testpod.New("Never", "a", "b")
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}, {Name: "j", RestartPolicy: &never}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"},
		TargetContainerName: "a"}}
	got := ""
	for _, c := range containersOf(pod) {
		got += fmt.Sprintf("%s:%d%s ", c.spec.Name, c.kind, c.target)
	}
	if want := "i:1 s:2 j:1 a:0 b:0 e:3a "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
