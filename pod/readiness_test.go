package pod

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

func TestReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		say := answer(fake, map[string]bool{})
		pod := testpod.New("Always", "main", "other")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("ready", 2)
		s := supervise(t, fake, pod)
		status := s.after(10 * time.Second)
		if got := healthOf(status.ContainerStatuses[0]); got != "running started" {
			t.Errorf("main is %s", got)
		}
		if got := healthOf(status.ContainerStatuses[1]); got != "running started ready" {
			t.Errorf("other is %s", got)
		}
		want := map[string]string{"PodReadyToStartContainers": "True", "Initialized": "True", "Ready": "False ContainersNotReady",
			"ContainersReady": "False ContainersNotReady", "PodScheduled": "True"}
		if diff := cmp.Diff(want, conditions(status)); diff != "" {
			t.Error(diff)
		}
		say("ready", true)
		status = s.after(time.Second)
		if got := conditions(status)["Ready"]; got != "True" {
			t.Errorf("Ready is %s", got)
		}
		say("ready", false)
		if got := conditions(s.after(time.Second))["Ready"]; got != "True" {
			t.Errorf("Ready is %s after one failure", got)
		}
		if got := conditions(s.after(time.Second))["Ready"]; got != "False ContainersNotReady" {
			t.Errorf("Ready is %s after two failures", got)
		}
		if got := s.messages("Unhealthy"); len(got) == 0 || got[0] != "main: Readiness probe failed: not well: 0123456789abcdef0123456789abcdef" {
			t.Errorf("events %q", got)
		}
		if len(s.messages("Killing")) > 0 || len(fake.called("StopContainer")) > 0 {
			t.Error("a container that is not ready was killed")
		}
	})
}

// TestReadinessEndsWithTheContainer, and starts again with the next one.
func TestReadinessEndsWithTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		answer(fake, map[string]bool{"ready": true})
		fake.scripts["main"] = []life{{lasts: 5 * time.Second, code: 1}, {lasts: 5 * time.Second, code: 1}, {}}
		pod := testpod.New("Always", "main")
		pod.Spec.Containers[0].ReadinessProbe = execProbe("ready", 1)
		pod.Spec.Containers[0].ReadinessProbe.InitialDelaySeconds = 3
		s := supervise(t, fake, pod)
		for _, step := range []struct {
			at   time.Duration
			want string
		}{
			{want: "running started"}, {at: 3 * time.Second, want: "running started ready"},
			{at: 5 * time.Second, want: "running started"}, {at: 8 * time.Second, want: "running started ready"},
			{at: 10 * time.Second, want: "waiting CrashLoopBackOff"}, {at: 20 * time.Second, want: "running started"},
			{at: 23 * time.Second, want: "running started ready"},
		} {
			if got := healthOf(s.after(step.at - time.Since(s.Status().StartTime.Time)).ContainerStatuses[0]); got != step.want {
				t.Errorf("at %v: %s, want %s", step.at, got, step.want)
			}
		}
	})
}
