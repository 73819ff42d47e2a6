package probe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Target is one run of a container, as the target of probes and hooks. It is safe for concurrent use.
type Target struct {
	Container *corev1.Container
	// ID is the runtime's.
	ID string
	// Command prepares a probe's command; nil leaves it unchanged.
	Command func(command []string) []string
	Runtime Executor
	// Dial connects to the pod. Host is its address, empty for a pod without a network.
	Dial Dialer
	Host string
}

// Probe runs a probe once, within its timeout. An error comes with Unknown, and means that the container was not
// probed.
func (t *Target) Probe(ctx context.Context, probe *corev1.Probe) (Result, string, error) {
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
	return Unknown, "", fmt.Errorf("container %s: missing probe handler", t.Container.Name)
}
