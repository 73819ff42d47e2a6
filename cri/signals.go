package cri

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/image"
)

// stopSignal is what asks a container to end: the container's own, else the
// image's, else TERM. One that is no signal is as none.
func stopSignal(config *runtimeapi.ContainerConfig, img image.Image) int {
	if s := config.GetStopSignal(); s != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		if n := signalNumber(strings.TrimPrefix(s.String(), "SIGNAL_")); n > 0 {
			return n
		}
	}
	if n := signalNumber(img.Config.StopSignal); n > 0 {
		return n
	}
	return int(unix.SIGTERM)
}

// criSignal is the CRI's name of the signal that asks a container to end: the
// one that its configuration has, else the first for the number.
func criSignal(config *runtimeapi.ContainerConfig, number int) runtimeapi.Signal {
	if s := config.GetStopSignal(); s != runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT {
		return s
	}
	for value := range int32(len(runtimeapi.Signal_name)) {
		if s := runtimeapi.Signal(value); value > 0 && signalNumber(strings.TrimPrefix(s.String(), "SIGNAL_")) == number {
			return s
		}
	}
	return runtimeapi.Signal_SIGNAL_RUNTIME_DEFAULT
}

// signalNumber reads "SIGTERM", "TERM", "15", "SIGRTMIN+3" or CRI's
// "SIGRTMINPLUS3"; 0 is none of these.
func signalNumber(s string) int {
	s = strings.ToUpper(strings.TrimSpace(s))
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 || n > 64 {
			return 0
		}
		return n
	}
	if !strings.HasPrefix(s, "SIG") {
		s = "SIG" + s
	}
	s = strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(s)
	for _, edge := range []struct {
		name string
		at   int
	}{{"SIGRTMIN", 34}, {"SIGRTMAX", 64}} {
		rest, ok := strings.CutPrefix(s, edge.name)
		if !ok {
			continue
		}
		if rest == "" {
			return edge.at
		}
		if n, err := strconv.Atoi(rest); err == nil && edge.at+n >= 34 && edge.at+n <= 64 {
			return edge.at + n
		}
		return 0
	}
	switch s { // names that the kernel has two of
	case "SIGCLD":
		s = "SIGCHLD"
	case "SIGPOLL":
		s = "SIGIO"
	case "SIGIOT":
		s = "SIGABRT"
	}
	return int(unix.SignalNum(s))
}
