package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Every signal of the CRI is a number, and the number is told as a signal that
// means the same.
func TestSignalsOfTheCRI(t *testing.T) {
	for value := range int32(len(runtimeapi.Signal_name)) {
		s := runtimeapi.Signal(value)
		if value == 0 {
			continue
		}
		config := &runtimeapi.ContainerConfig{StopSignal: s}
		number := signalNumber(s.String()[len("SIGNAL_"):])
		if number < 1 || number > 64 {
			t.Errorf("%v is %d", s, number)
		}
		if got := criSignal(config, number); got != s {
			t.Errorf("%v is told as %v", s, got)
		}
		told := criSignal(nil, number)
		if again := signalNumber(told.String()[len("SIGNAL_"):]); again != number {
			t.Errorf("%d is told as %v, which is %d", number, told, again)
		}
	}
	if got := criSignal(nil, 15); got != runtimeapi.Signal_SIGNAL_SIGTERM {
		t.Errorf("15 is %v", got)
	}
}
