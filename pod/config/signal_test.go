package config

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestStopSignal(t *testing.T) {
	for name, want := range map[corev1.Signal]runtimeapi.Signal{
		"": runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT, "SIGUSR1": runtimeapi.Signal_SIGNAL_SIGUSR1, "SIGTERM": runtimeapi.Signal_SIGNAL_SIGTERM,
		"SIGRTMIN+3": runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3, "SIGRTMAX-2": runtimeapi.Signal_SIGNAL_SIGRTMAXMINUS2,
	} {
		spec := &corev1.Container{Lifecycle: &corev1.Lifecycle{}}
		if name != "" {
			spec.Lifecycle.StopSignal = &name
		}
		got := criSignal(spec)
		if got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
		if name != "" && Signal(got) != name {
			t.Errorf("%v is %s, want %s", got, Signal(got), name)
		}
	}
	if got := criSignal(&corev1.Container{}); got != 0 {
		t.Errorf("no lifecycle: %v", got)
	}
}
