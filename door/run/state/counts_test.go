package state

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

var (
	always  = corev1.ContainerRestartPolicyAlways
	running = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	done    = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
	failed  = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Message: "no disk"}}
	waiting = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
)

// aPod returns a pod with the init containers i and j, the sidecar s between them, and the regular containers a and b.
func aPod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}, {Name: "j"}},
		Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
	}}
}

func container(name string, state corev1.ContainerState, restarts int32, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: state, RestartCount: restarts, Ready: ready, Started: new(state.Running != nil)}
}

// TestCount checks the counts of containers and restarts that kubectl shows. Until the pod is initialized, only
// restarts of init containers count.
func TestCount(t *testing.T) {
	t.Parallel()
	type statuses = []corev1.ContainerStatus
	for _, tc := range []struct {
		name        string
		initialized bool
		inits, own  statuses
		want        Counts
	}{
		{
			name:  "the first init container keeps failing",
			inits: statuses{container("i", waiting, 4, false), container("s", waiting, 0, false), container("j", waiting, 0, false)},
			own:   statuses{container("a", waiting, 0, false), container("b", waiting, 0, false)},
			want:  Counts{Containers: 3, Restarts: 4},
		},
		{
			name:  "the last init container runs; earlier ones were restarted",
			inits: statuses{container("i", done, 1, false), container("s", running, 2, true), container("j", running, 4, false)},
			own:   statuses{container("a", waiting, 0, false), container("b", waiting, 0, false)},
			want:  Counts{Containers: 3, Ready: 1, Restarts: 7},
		},
		{
			name: "the regular containers run", initialized: true,
			inits: statuses{container("i", done, 1, false), container("s", running, 2, true), container("j", done, 4, false)},
			own:   statuses{container("a", running, 8, true), container("b", running, 16, false)},
			want:  Counts{Containers: 3, Ready: 2, Restarts: 26},
		},
	} {
		status := corev1.PodStatus{Phase: corev1.PodPending, InitContainerStatuses: tc.inits, ContainerStatuses: tc.own}
		if tc.initialized {
			status.Conditions = []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}}
		}
		if diff := cmp.Diff(tc.want, Count(aPod(), status)); diff != "" {
			t.Errorf("%s: counts (-want +got):\n%s", tc.name, diff)
		}
	}
}

// TestUnderWay checks that a start is under way once an init container has started, or else all containers have.
func TestUnderWay(t *testing.T) {
	t.Parallel()
	p := aPod()
	if UnderWay(p, corev1.PodStatus{}) {
		t.Error("UnderWay before any container has started: got true, want false")
	}
	if !UnderWay(p, corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{container("i", running, 0, false)}}) {
		t.Error("UnderWay while an init container runs: got false, want true")
	}
	p.Spec.InitContainers = nil
	one := []corev1.ContainerStatus{container("a", running, 0, false), container("b", waiting, 0, false)}
	if UnderWay(p, corev1.PodStatus{ContainerStatuses: one}) {
		t.Error("UnderWay when one of two containers has started: got true, want false")
	}
	again := container("b", waiting, 1, false)
	again.LastTerminationState = failed
	if !UnderWay(p, corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{container("a", done, 0, false), again}}) {
		t.Error("UnderWay when both containers have started: got false, want true")
	}
}

// TestEnds checks the exit code and the message of ended pods. Sidecars do not count.
func TestEnds(t *testing.T) {
	t.Parallel()
	p := aPod()
	status := corev1.PodStatus{
		Phase: corev1.PodSucceeded, Message: "its own",
		InitContainerStatuses: []corev1.ContainerStatus{container("i", done, 0, false), container("s", failed, 0, false)},
		ContainerStatuses:     []corev1.ContainerStatus{container("a", done, 0, false)},
	}
	if code, text := ExitCode(p, status), EndMessage(p, status); code != 0 || text != "its own" {
		t.Errorf("exit code and message of a pod that succeeded: got %d, %q, want 0, \"its own\"", code, text)
	}
	status.Phase = corev1.PodFailed
	if code := ExitCode(p, status); code != 1 {
		t.Errorf("exit code of a pod that failed without a failed container: got %d, want 1", code)
	}
	status.ContainerStatuses = append(status.ContainerStatuses, container("b", failed, 0, false))
	if code, text := ExitCode(p, status), EndMessage(p, status); code != 3 || text != "b: no disk" {
		t.Errorf("exit code and message of a pod with a failed container: got %d, %q, want 3, \"b: no disk\"", code, text)
	}
}

// TestMemoryLimits checks that the limit of a resized container is the one in force, and of an ended container the
// specified one.
func TestMemoryLimits(t *testing.T) {
	t.Parallel()
	limit := func(text string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}}
	}
	p := aPod()
	p.Spec.InitContainers = nil
	p.Spec.Containers[0].Resources, p.Spec.Containers[1].Resources = limit("64Mi"), limit("32Mi")
	resized := container("a", running, 0, true)
	has := limit("96Mi")
	resized.Resources = &has
	ended := container("b", done, 0, false)
	ended.Resources = &corev1.ResourceRequirements{}
	got := MemoryLimits(p, corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{resized, ended}})
	if diff := cmp.Diff(map[string]int64{"a": 96 << 20, "b": 32 << 20}, got); diff != "" {
		t.Errorf("memory limits (-want +got):\n%s", diff)
	}
}

// TestQueued checks that a pod is queued while its condition PodScheduled is false.
func TestQueued(t *testing.T) {
	t.Parallel()
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionFalse: true, corev1.ConditionTrue: false} {
		conditions := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.PodScheduled, Status: status}}
		if got := Queued(corev1.PodStatus{Conditions: conditions}); got != want {
			t.Errorf("Queued with PodScheduled=%s: got %t, want %t", status, got, want)
		}
	}
	if Queued(corev1.PodStatus{}) {
		t.Error("Queued of a pod without conditions: got true, want false")
	}
}
