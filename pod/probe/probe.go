// Package probe asks containers how they are, as a kubelet does: the actions
// (HTTP, TCP, gRPC and a command, which lifecycle hooks use too) and the Prober,
// which carries out the probes of one run of a container.
//
// Whatever a container answers is hostile: it is read up to a bound, and shown
// by way of Line.
package probe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Result is what an action found.
type Result int

// The results.
const (
	// Unknown comes with an error: the container was not asked.
	Unknown Result = iota
	Success
	// Warning is a success with something to tell: an HTTP redirection that
	// leads elsewhere.
	Warning
	Failure
)

func (r Result) String() string {
	switch r {
	case Success:
		return "success"
	case Warning:
		return "warning"
	case Failure:
		return "failure"
	}
	return "unknown"
}

// Dialer connects to a TCP port of the pod. ctx bounds the connecting only. An
// error that matches ErrNotAsked is nobody's in the pod; any other one is the
// pod's answer, syscall.ECONNREFUSED where nothing listens.
type Dialer func(ctx context.Context, port int) (net.Conn, error)

// ErrNotAsked is matched by errors that tell nothing about the container: what
// lies between has failed.
var ErrNotAsked = errors.New("the pod could not be reached")

// To returns a Dialer to a host on the network, for pods that can be reached by
// their address. Without one nobody is asked.
func To(host string) Dialer {
	return func(ctx context.Context, port int) (net.Conn, error) {
		if host == "" { // which would be this very machine
			return nil, fmt.Errorf("%w: it has no address", ErrNotAsked)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	}
}

// Bounds of what is read of a container's answer, in bytes.
const (
	maxOutput = 10 << 10
	maxLine   = 1024
)

// How probes and hooks call themselves: by the release of Kubernetes whose Pod
// they read.
const (
	probeAgent = "kube-probe/1.37"
	hookAgent  = "kube-lifecycle/1.37"
)

// Port is the number of a port given as a number or as the name of one of the
// container's ports.
func Port(port intstr.IntOrString, container *corev1.Container) (int, error) {
	number := port.IntValue() // of a string 0, if it is no number
	if port.Type == intstr.String {
		for _, known := range container.Ports {
			if known.Name != "" && known.Name == port.StrVal {
				number = int(known.ContainerPort)
			}
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("port %q of container %s: %w", port.String(), container.Name, errPort)
	}
	return number, nil
}

var errPort = errors.New("neither a port's name nor a number from 1 to 65535")

// changing matches the parts of an error that differ each time: the ids of commands and containers, and the client's own port.
var changing = regexp.MustCompile(`(?:sha[0-9]+:)?\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b|(?:\[[0-9a-f:]+\]|[0-9.]+):[0-9]+->`)

// Stable replaces what differs each time in an error, so that events of the same failure merge. Digests stay.
func Stable(text string) string {
	return changing.ReplaceAllStringFunc(text, func(part string) string {
		switch {
		case strings.HasPrefix(part, "sha"):
			return part
		case strings.HasSuffix(part, "->"):
			return "->"
		}
		return "…"
	})
}

// Line makes a container's output fit to be shown: one line of printable text,
// at most 1 KiB.
func Line(output string) string {
	output = strings.ToValidUTF8(output[:min(len(output), maxOutput)], "?")
	output = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, output)
	output = strings.TrimSpace(output)
	if len(output) <= maxLine {
		return output
	}
	end := maxLine - len("...")
	for end > 0 && !utf8.RuneStart(output[end]) {
		end--
	}
	return output[:end] + "..."
}
