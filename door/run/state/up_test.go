package state

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// upStatus returns the status of a pod with one container.
func upStatus(ready corev1.ConditionStatus, restarts int32) corev1.PodStatus {
	return corev1.PodStatus{
		Phase:             corev1.PodRunning,
		Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "c", RestartCount: restarts}},
	}
}

// TestUp: a container without a readiness probe is up after a moment, one with a probe at once.
func TestUp(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	var up Up
	at := time.Now()
	for i, step := range []struct {
		after    time.Duration
		ready    corev1.ConditionStatus
		restarts int32
		left     time.Duration
		is       bool
	}{
		{0, corev1.ConditionFalse, 0, 0, false},
		{0, corev1.ConditionTrue, 0, hold, true},
		{hold / 2, corev1.ConditionTrue, 0, hold / 2, true},
		{0, corev1.ConditionFalse, 0, 0, false},
		{0, corev1.ConditionTrue, 1, hold, true},
		{hold / 2, corev1.ConditionTrue, 2, hold, true}, // it has ended and runs again between two looks
		{hold, corev1.ConditionTrue, 2, 0, true},
	} {
		at = at.Add(step.after)
		if left, is := up.Left(p, upStatus(step.ready, step.restarts), at); left != step.left || is != step.is {
			t.Errorf("step %d: %v, %v", i, left, is)
		}
	}
	p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{}
	if left, is := (&Up{}).Left(p, upStatus(corev1.ConditionTrue, 0), at); left != 0 || !is {
		t.Errorf("with a probe: %v, %v", left, is)
	}
}

func TestCrashing(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	p.Name = "crash"
	status := upStatus(corev1.ConditionFalse, 1)
	if got := Crashing(p, status); got != nil {
		t.Errorf("a pod that runs: %+v", got)
	}
	c := &status.ContainerStatuses[0]
	c.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
	c.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 7, Reason: "Error"}
	got := Crashing(p, status)
	if got == nil || got.ExitCode != 7 || got.Pod != "crash" || !strings.Contains(got.Message, "container c has ended 2 times, with code 7") {
		t.Errorf("%+v", got)
	}
	c.LastTerminationState.Terminated.ExitCode = 0
	if got := Crashing(p, status); got == nil || got.ExitCode != 1 || !strings.Contains(got.Message, "restartPolicy") {
		t.Errorf("one that ends well, again and again: %+v", got)
	}
}

// TestExitCodeOfDeadline: a pod that ended by its deadline has podman's code, however the containers ended.
func TestExitCodeOfDeadline(t *testing.T) {
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	status := corev1.PodStatus{Phase: corev1.PodFailed, Reason: "DeadlineExceeded", Message: "too long"}
	for _, code := range []int32{0, 137, 143} {
		end := &corev1.ContainerStateTerminated{ExitCode: code, Message: "its own words"}
		status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{Terminated: end}}}
		if got, text := ExitCode(p, status), EndMessage(p, status); got != 255 || text != "too long" {
			t.Errorf("container's code %d: %d, %q", code, got, text)
		}
	}
}
