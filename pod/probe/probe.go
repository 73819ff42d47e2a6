// Package probe probes containers like a kubelet. It has the actions (HTTP, TCP, gRPC and commands, which lifecycle
// hooks also use) and the Prober, which runs the probes of one run of a container.
//
// All responses of a container are hostile. They are read up to a limit, and shown through Line.
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

// Result is the result of an action.
type Result int

// The results.
const (
	// Unknown comes with an error: the container was not probed.
	Unknown Result = iota
	Success
	// Warning is a success with a remark: an HTTP redirection to another host.
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

// Dialer connects to a TCP port of the pod. ctx bounds only the dial. An error that matches ErrNotAsked is not the
// pod's. Any other error is the pod's answer, syscall.ECONNREFUSED if no process listens.
type Dialer func(ctx context.Context, port int) (net.Conn, error)

// ErrNotAsked is matched by errors that do not depend on the container: the path to it has failed.
var ErrNotAsked = errors.New("the pod could not be reached")

// To returns a Dialer to a host on the network, for pods with a reachable address. With an empty host, every dial fails
// with ErrNotAsked.
func To(host string) Dialer {
	return func(ctx context.Context, port int) (net.Conn, error) {
		if host == "" { // an empty host would mean this host
			return nil, fmt.Errorf("%w: it has no address", ErrNotAsked)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	}
}

// Limits for the output of a container, in bytes.
const (
	maxOutput = 10 << 10
	maxLine   = 1024
)

// The User-Agents of probes and hooks, with the Kubernetes release of the Pod API.
const (
	probeAgent = "kube-probe/1.37"
	hookAgent  = "kube-lifecycle/1.37"
)

// Port returns the number of a port given by number or by the name of one of the container's ports.
func Port(port intstr.IntOrString, container *corev1.Container) (int, error) {
	number := port.IntValue() // 0 for a string without a number
	if port.Type == intstr.String {
		for _, known := range container.Ports {
			if known.Name != "" && known.Name == port.StrVal {
				number = int(known.ContainerPort)
			}
		}
	}
	if number < 1 || number > 65535 {
		return 0, fmt.Errorf("port %q of container %s: neither a port's name nor a number from 1 to 65535",
			port.String(), container.Name)
	}
	return number, nil
}

// changing matches the parts of an error that differ each time: ids of commands and containers, and the client's port.
var changing = regexp.MustCompile(`(?:sha[0-9]+:)?\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b|(?:\[[0-9a-f:]+\]|[0-9.]+):[0-9]+->`)

// Stable replaces the changing parts of an error, so that events of the same failure merge. Digests stay.
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

// Line makes a container's output presentable: one line of printable text, at most 1 KiB.
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
