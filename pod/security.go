package pod

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// securityContext merges the container's wishes over the pod's and the image's.
// An error is a wish that contradicts another.
func securityContext(pod *corev1.Pod, container *corev1.Container, image *runtimeapi.Image) (*runtimeapi.LinuxContainerSecurityContext, error) {
	own, shared := container.SecurityContext, pod.Spec.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	if shared == nil {
		shared = &corev1.PodSecurityContext{}
	}
	if own.Privileged != nil && *own.Privileged {
		return nil, fmt.Errorf("privileged containers are not honoured yet")
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions:   namespaceOptions(),
		Seccomp:            seccompProfile(own.SeccompProfile, shared.SeccompProfile),
		ReadonlyRootfs:     own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem,
		NoNewPrivs:         own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation,
		SupplementalGroups: shared.SupplementalGroups,
	}
	if capabilities := own.Capabilities; capabilities != nil {
		out.Capabilities = &runtimeapi.Capability{
			AddCapabilities:  texts(capabilities.Add),
			DropCapabilities: texts(capabilities.Drop),
		}
	}
	uid, gid := first(own.RunAsUser, shared.RunAsUser), first(own.RunAsGroup, shared.RunAsGroup)
	switch {
	case uid != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: *uid}
	case image.GetUid() != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: image.GetUid().GetValue()}
	case image.GetUsername() != "":
		out.RunAsUsername = image.GetUsername()
	case gid != nil:
		out.RunAsUser = &runtimeapi.Int64Value{Value: 0}
	}
	if gid != nil {
		out.RunAsGroup = &runtimeapi.Int64Value{Value: *gid}
	}
	if nonRoot := first(own.RunAsNonRoot, shared.RunAsNonRoot); nonRoot != nil && *nonRoot {
		switch {
		case out.RunAsUser != nil && out.RunAsUser.Value == 0, out.RunAsUser == nil && out.RunAsUsername == "":
			return nil, fmt.Errorf("container has runAsNonRoot and would run as root")
		case out.RunAsUser == nil:
			return nil, fmt.Errorf("container has runAsNonRoot and its image has the user name %q, which may be root's: set runAsUser", out.RunAsUsername)
		}
	}
	return out, nil
}

// seccompProfile is the runtime's default where nobody says otherwise.
func seccompProfile(profiles ...*corev1.SeccompProfile) *runtimeapi.SecurityProfile {
	profile := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	if wish := firstOf(profiles); wish != nil && wish.Type == corev1.SeccompProfileTypeUnconfined {
		profile.ProfileType = runtimeapi.SecurityProfile_Unconfined
	}
	return profile
}

func first[T any](values ...*T) *T { return firstOf(values) }

func firstOf[T any](values []*T) *T {
	for _, value := range values {
		if value != nil {
			return value
		}
	}
	return nil
}

func texts[T ~string](values []T) []string {
	var out []string
	for _, value := range values {
		out = append(out, string(value))
	}
	return out
}
