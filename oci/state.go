package oci

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// State converts the state of a sandbox or container to the form that an OCI runtime prints. An unknown state is an
// error.
func State(state string) (specs.ContainerState, error) {
	switch state {
	case "ready":
		return specs.StateCreated, nil
	case "running":
		return specs.StateRunning, nil
	case "stopped":
		return specs.StateStopped, nil
	case "paused":
		return "paused", nil // not in the specification, but in every runtime
	}
	return "", fmt.Errorf("unknown state %q", state)
}
