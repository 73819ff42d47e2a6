package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Target is one run of a container, to be asked. Its methods may be called at
// once.
type Target struct {
	Container *corev1.Container
	// ID is the runtime's.
	ID string
	// Command makes a probe's command ready to be run; nil takes it as it is.
	Command func(command []string) []string
	Runtime Executor
	// Dial connects to the pod, whose address is Host (empty for a pod without).
	Dial Dialer
	Host string
}

// Ask carries out a probe once, within its timeout. An error, which comes with
// Unknown, tells nothing about the container.
func (t *Target) Ask(ctx context.Context, probe *corev1.Probe) (Result, string, error) {
	timeout := time.Duration(probe.TimeoutSeconds) * time.Second
	if probe.Exec != nil {
		command := probe.Exec.Command
		if t.Command != nil {
			command = t.Command(command)
		}
		return Exec(ctx, t.Runtime, t.ID, command, timeout)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch {
	case probe.HTTPGet != nil:
		port, err := Port(probe.HTTPGet.Port, t.Container)
		if err != nil {
			return Unknown, "", err
		}
		return HTTP(ctx, t.Dial, probe.HTTPGet, port, t.Host)
	case probe.TCPSocket != nil:
		port, err := Port(probe.TCPSocket.Port, t.Container)
		if err != nil {
			return Unknown, "", err
		}
		return TCP(ctx, t.Dial, port)
	case probe.GRPC != nil:
		return GRPC(ctx, t.Dial, probe.GRPC, t.Host)
	}
	return Unknown, "", fmt.Errorf("container %s: %w", t.Container.Name, errHandler)
}

var errHandler = errors.New("missing probe handler")
