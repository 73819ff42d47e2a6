package config

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const signalPrefix = "SIGNAL_"

// criSignal returns a container's stop signal for the CRI. The default is the runtime's.
func criSignal(spec *corev1.Container) runtimeapi.Signal {
	if spec.Lifecycle == nil || spec.Lifecycle.StopSignal == nil {
		return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	}
	name := strings.NewReplacer("+", "PLUS", "-", "MINUS").Replace(string(*spec.Lifecycle.StopSignal))
	return runtimeapi.Signal(runtimeapi.Signal_value[signalPrefix+name])
}

// Signal is the inverse of criSignal: SIGNAL_SIGRTMINPLUS1 becomes SIGRTMIN+1.
func Signal(signal runtimeapi.Signal) corev1.Signal {
	name := strings.TrimPrefix(signal.String(), signalPrefix)
	return corev1.Signal(strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name))
}
