package state

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestText compares the column with kubectl's.
func TestText(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{Name: "i"}, {Name: "s", RestartPolicy: &always}, {Name: "j"}}}}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ends := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	runs := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	init := waits("PodInitializing")
	type list = []corev1.ContainerState
	begun := list{ends(0, "Completed"), runs, ends(0, "Completed")}
	over := list{ends(0, "Completed"), ends(143, "Error"), ends(0, "Completed")}
	falls := list{ends(0, "Completed"), waits("CrashLoopBackOff"), ends(0, "Completed")}
	tests := []struct {
		name        string
		phase       corev1.PodPhase
		reason      string
		initialized bool
		inits       list
		own         list
		want        string
	}{
		{"begins", "Pending", "", false, list{init, init, init}, list{init}, "Init:0/3"},
		{"the first runs", "Pending", "", false, list{runs, init, init}, list{init}, "Init:0/3"},
		{"the first has ended", "Pending", "", false, list{ends(0, "Completed"), init, init}, list{init}, "Init:1/3"},
		{"the sidecar runs", "Pending", "", false, list{ends(0, "Completed"), runs, init}, list{init}, "Init:2/3"},
		{"fails", "Pending", "", false, list{ends(1, "Error"), init, init}, list{init}, "Init:Error"},
		{"fails for want of memory", "Failed", "", false, list{ends(137, "OOMKilled"), init, init}, list{init}, "Init:OOMKilled"},
		{"fails again and again", "Pending", "", false, list{waits("CrashLoopBackOff"), init, init}, list{init}, "Init:CrashLoopBackOff"},
		{"has no image", "Pending", "", false, list{waits("ErrImagePull"), init, init}, list{init}, "Init:ErrImagePull"},
		{"init containers have ended", "Pending", "", true, begun, list{waits("PodInitializing")}, "PodInitializing"},
		{"runs", "Running", "", true, begun, list{runs}, "Running"},
		{"a sidecar falls", "Running", "", true, falls, list{runs}, "Running"},
		{"a regular one falls", "Running", "", true, begun, list{waits("CrashLoopBackOff")}, "CrashLoopBackOff"},
		{"has lost its VM and is about to start again", "Running", "", true, begun, list{ends(137, "VMKilled")}, "VMKilled"},
		{"one has failed and one runs", "Running", "", true, begun, list{runs, ends(2, "Error")}, "Error"},
		{"one has ended and one runs", "Running", "", true, begun, list{ends(0, "Completed"), runs}, "Running"},
		{"has ended", "Succeeded", "", true, over, list{ends(0, "Completed")}, "Completed"},
		{"has failed", "Failed", "", true, over, list{ends(2, "Error")}, "Error"},
		{"was ended before it began", "Failed", "", true, begun, list{waits("ContainerCreating")}, "Failed"},
		{"has lasted too long", "Failed", "DeadlineExceeded", true, over, list{ends(137, "Error")}, "DeadlineExceeded"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			status := corev1.PodStatus{Phase: test.phase, Reason: test.reason}
			for _, state := range test.inits {
				c := corev1.ContainerStatus{State: state, Started: new(state.Running != nil)}
				status.InitContainerStatuses = append(status.InitContainerStatuses, c)
			}
			for _, state := range test.own {
				status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{State: state})
			}
			condition := corev1.PodCondition{Type: corev1.PodInitialized, Status: corev1.ConditionFalse}
			if test.initialized {
				condition.Status = corev1.ConditionTrue
			}
			status.Conditions = []corev1.PodCondition{condition}
			if got := Text(pod, status); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestSignalled: a pod counts as stopped only if its containers were ended by signals.
func TestSignalled(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		codes []int32
		want  bool
	}{{nil, false}, {[]int32{0}, false}, {[]int32{143}, true}, {[]int32{0, 137}, true}, {[]int32{1, 143}, false}, {[]int32{7}, false}} {
		var status corev1.PodStatus
		for _, code := range test.codes {
			end := &corev1.ContainerStateTerminated{ExitCode: code}
			status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{State: corev1.ContainerState{Terminated: end}})
		}
		if got := Signalled(status); got != test.want {
			t.Errorf("%v: %v", test.codes, got)
		}
	}
}
