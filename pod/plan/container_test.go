package plan

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/instance"
)

func TestContainers(t *testing.T) {
	pod := testpod.New("Never", "a", "b")
	always, never := corev1.ContainerRestartPolicyAlways, corev1.ContainerRestartPolicyNever
	pod.Spec.InitContainers = []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}, {Name: "j", RestartPolicy: &never}}
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"},
		TargetContainerName: "a"}}
	got := ""
	for _, c := range Containers(&pod.Spec) {
		got += fmt.Sprintf("%s:%d%s ", c.Spec.Name, c.Kind, c.Target)
	}
	if want := "i:1 s:2 j:1 a:0 b:0 e:3a "; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestClockSetBack: a container that ended in the future, by the old clock, waits no longer than others for its
// restart.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	now := time.Now()
	ended := func(id string, at time.Time) *instance.Instance {
		return &instance.Instance{Status: &runtimeapi.ContainerStatus{
			Id: id, State: runtimeapi.ContainerState_CONTAINER_EXITED, FinishedAt: at.UnixNano(),
		}}
	}
	var restart backoff.Backoff
	restart.Next(now.Add(-time.Second), now.Add(-time.Second))
	c := &Container{Newest: ended("a", now.Add(time.Hour)), Restart: restart}
	c.Sight(now)
	if due := c.Restart.Until(c.EndedAt()); !due.Equal(now.Add(backoff.First)) {
		t.Errorf("due in %v", due.Sub(now))
	}
	c.Sight(now.Add(time.Minute))
	if later := c.EndedAt(); !later.Equal(now) {
		t.Errorf("ended at %v, looked at again", later)
	}
	c.Newest = ended("b", now.Add(-3*time.Second))
	c.Sight(now)
	if at := c.EndedAt(); now.Sub(at).Round(time.Millisecond) != 3*time.Second {
		t.Errorf("the next ended %v ago", now.Sub(at))
	}
}
