package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/image"
)

// TestSignalsOfTheCRI: every signal of the CRI has a number, and the number maps to an equivalent signal.
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
			t.Errorf("%v is returned as %v", s, got)
		}
		told := criSignal(nil, number)
		if again := signalNumber(told.String()[len("SIGNAL_"):]); again != number {
			t.Errorf("%d is returned as %v, which is %d", number, told, again)
		}
	}
	if got := criSignal(nil, 15); got != runtimeapi.Signal_SIGNAL_SIGTERM {
		t.Errorf("15 is %v", got)
	}
}

// TestStopSignal: a container's stop signal overrides its image's. Without a valid signal, it is TERM.
func TestStopSignal(t *testing.T) {
	const none = runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
	for _, tt := range []struct {
		name      string
		container runtimeapi.Signal
		image     string
		want      int
	}{
		{name: "neither", container: none, want: 15},
		{name: "the image's", container: none, image: "SIGQUIT", want: 3},
		{name: "the image's, short", container: none, image: "usr1", want: 10},
		{name: "the image's, as a number", container: none, image: "9", want: 9},
		{name: "the image's of real time", container: none, image: "SIGRTMIN+3", want: 37},
		{name: "the image's is unknown", container: none, image: "SIGNOTHING", want: 15},
		{name: "the image's number is too large", container: none, image: "65", want: 15},
		{name: "the container's", container: runtimeapi.Signal_SIGNAL_SIGINT, want: 2},
		{name: "the container's over the image's", container: runtimeapi.Signal_SIGNAL_SIGINT, image: "SIGQUIT", want: 2},
		{name: "the container's of real time", container: runtimeapi.Signal_SIGNAL_SIGRTMINPLUS3, image: "SIGQUIT", want: 37},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var img image.Image
			img.Config.StopSignal = tt.image
			if got := stopSignal(&runtimeapi.ContainerConfig{StopSignal: tt.container}, img); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}
