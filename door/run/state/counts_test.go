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

// aPod returns a pod with an initial container, a sidecar, another initial container, and two regular ones.
func aPod() *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}, {Name: "j"}},
		Containers:     []corev1.Container{{Name: "a"}, {Name: "b"}},
	}}
}

func container(name string, state corev1.ContainerState, restarts int32, ready bool) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: state, RestartCount: restarts, Ready: ready, Started: new(state.Running != nil)}
}

// TestCount compares the columns with kubectl's: during initialisation, restarts are those of initial containers.
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
			name:  "the first initial one fails again and again",
			inits: statuses{container("i", waiting, 4, false), container("s", waiting, 0, false), container("j", waiting, 0, false)},
			own:   statuses{container("a", waiting, 0, false), container("b", waiting, 0, false)},
			want:  Counts{Containers: 3, Restarts: 4},
		},
		{
			name:  "the last initial one, after others that were restarted",
			inits: statuses{container("i", done, 1, false), container("s", running, 2, true), container("j", running, 4, false)},
			own:   statuses{container("a", waiting, 0, false), container("b", waiting, 0, false)},
			want:  Counts{Containers: 3, Ready: 1, Restarts: 7},
		},
		{
			name: "begun", initialized: true,
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
			t.Errorf("%s: %s", tc.name, diff)
		}
	}
}

func TestUnderWay(t *testing.T) {
	t.Parallel()
	p := aPod()
	if UnderWay(p, corev1.PodStatus{}) {
		t.Error("nothing has begun")
	}
	if !UnderWay(p, corev1.PodStatus{InitContainerStatuses: []corev1.ContainerStatus{container("i", running, 0, false)}}) {
		t.Error("an initial one has begun")
	}
	p.Spec.InitContainers = nil
	one := []corev1.ContainerStatus{container("a", running, 0, false), container("b", waiting, 0, false)}
	if UnderWay(p, corev1.PodStatus{ContainerStatuses: one}) {
		t.Error("one of two has begun")
	}
	again := container("b", waiting, 1, false)
	again.LastTerminationState = failed
	if !UnderWay(p, corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{container("a", done, 0, false), again}}) {
		t.Error("both have begun")
	}
}

// TestEnds: sidecars do not affect how a pod ended.
func TestEnds(t *testing.T) {
	t.Parallel()
	p := aPod()
	status := corev1.PodStatus{
		Phase: corev1.PodSucceeded, Message: "its own",
		InitContainerStatuses: []corev1.ContainerStatus{container("i", done, 0, false), container("s", failed, 0, false)},
		ContainerStatuses:     []corev1.ContainerStatus{container("a", done, 0, false)},
	}
	if code, text := ExitCode(p, status), EndMessage(p, status); code != 0 || text != "its own" {
		t.Errorf("of a pod that succeeded: %d, %q", code, text)
	}
	status.Phase = corev1.PodFailed
	if code := ExitCode(p, status); code != 1 {
		t.Errorf("of a pod that failed without a failed container: %d", code)
	}
	status.ContainerStatuses = append(status.ContainerStatuses, container("b", failed, 0, false))
	if code, text := ExitCode(p, status), EndMessage(p, status); code != 3 || text != "b: no disk" {
		t.Errorf("of a pod with a failed container: %d, %q", code, text)
	}
}

// TestMemoryLimits: the limit of a resized container changes as soon as the container has it.
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
		t.Error(diff)
	}
}

// TestQueued: a pod waits for its turn until it is scheduled.
func TestQueued(t *testing.T) {
	t.Parallel()
	for status, want := range map[corev1.ConditionStatus]bool{corev1.ConditionFalse: true, corev1.ConditionTrue: false} {
		conditions := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.PodScheduled, Status: status}}
		if got := Queued(corev1.PodStatus{Conditions: conditions}); got != want {
			t.Errorf("scheduled is %s: %t", status, got)
		}
	}
	if Queued(corev1.PodStatus{}) {
		t.Error("of a pod without conditions")
	}
}
