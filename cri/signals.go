package cri

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/image"
)

// stopSignal returns a container's stop signal: its own, else the image's, else TERM. Invalid signals are ignored.
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

// criSignal returns the CRI's name of a stop signal: the configured one, else the first one with the number.
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

// signalNumber reads "SIGTERM", "TERM", "15", "SIGRTMIN+3" or the CRI's "SIGRTMINPLUS3". It returns 0 for other texts.
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
	switch s { // names that are aliases in the kernel
	case "SIGCLD":
		s = "SIGCHLD"
	case "SIGPOLL":
		s = "SIGIO"
	case "SIGIOT":
		s = "SIGABRT"
	}
	return int(unix.SignalNum(s))
}
