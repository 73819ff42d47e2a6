package podstatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestStartError(t *testing.T) {
	for _, test := range []struct {
		name string
		end  corev1.ContainerStateTerminated
		fail bool // it could not be started
		code int
	}{
		{name: "not there", end: corev1.ContainerStateTerminated{ExitCode: 127, Reason: "ContainerCannotRun", Message: "no `x`"}, fail: true,
			code: 127},
		{name: "no program", end: corev1.ContainerStateTerminated{ExitCode: 126}, fail: true, code: 126},
		{name: "a forged message", end: corev1.ContainerStateTerminated{ExitCode: 127, Message: "x (exit code 0)"}, fail: true, code: 127},
		{name: "somebody else's", end: corev1.ContainerStateTerminated{ExitCode: 128, Reason: ReasonStart, Message: "no such file"}, code: 128},
		{name: "a program's", end: corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error", Message: "x (exit code 0)"}, code: 3},
	} {
		if test.fail {
			StartError(&test.end)
			if test.end.ExitCode != CodeStart || test.end.Reason != "StartError" {
				t.Errorf("%s: %d %s", test.name, test.end.ExitCode, test.end.Reason)
			}
		}
		spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}
		status := &corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{
			{Name: "c", State: corev1.ContainerState{Terminated: &test.end}},
		}}
		if got, known := ExitCode(spec, status); got != test.code || !known {
			t.Errorf("%s: exit code %d, known %t", test.name, got, known)
		}
	}
}
