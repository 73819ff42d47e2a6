package spec

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/oci"
)

// seccomp returns the profile. Without a request, or for a privileged container, it returns none, as in the CRI.
func seccomp(
	security *runtimeapi.LinuxContainerSecurityContext, localhost *specs.LinuxSeccomp, caps *specs.LinuxCapabilities,
) (*specs.LinuxSeccomp, error) {
	profile := security.GetSeccomp()
	if profile == nil || security.GetPrivileged() {
		return nil, nil
	}
	switch profile.GetProfileType() {
	case runtimeapi.SecurityProfile_Unconfined:
		return nil, nil
	case runtimeapi.SecurityProfile_RuntimeDefault:
		return oci.DefaultSeccomp(caps.Bounding)
	case runtimeapi.SecurityProfile_Localhost:
		if localhost == nil {
			return nil, fmt.Errorf("%w: seccomp profile %q was not read", oci.ErrInvalid, profile.GetLocalhostRef())
		}
		return localhost, nil
	default:
		return nil, fmt.Errorf("%w: seccomp profile %v", oci.ErrNotSupported, profile.GetProfileType())
	}
}
