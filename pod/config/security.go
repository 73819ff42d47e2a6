package config

import (
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// securityContext merges the container's settings over the pod's and the image's. It returns an error for
// contradictions.
func securityContext(o *Options, container *corev1.Container, image *runtimeapi.Image) (*runtimeapi.LinuxContainerSecurityContext, error) {
	pod, own, shared := o.Pod, container.SecurityContext, o.Pod.Spec.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	if shared == nil {
		shared = &corev1.PodSecurityContext{}
	}
	seccomp, err := seccompProfile(o.SeccompDir, own.SeccompProfile, shared.SeccompProfile)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions:         namespaceOptions(pod),
		Privileged:               isTrue(own.Privileged),
		Seccomp:                  seccomp,
		ReadonlyRootfs:           isTrue(own.ReadOnlyRootFilesystem),
		NoNewPrivs:               own.AllowPrivilegeEscalation != nil && !*own.AllowPrivilegeEscalation,
		SupplementalGroupsPolicy: groupsPolicy(shared),
	}
	if shared.FSGroup != nil {
		out.SupplementalGroups = append(out.SupplementalGroups, *shared.FSGroup)
	}
	out.SupplementalGroups = append(out.SupplementalGroups, shared.SupplementalGroups...)
	if own.ProcMount == nil || *own.ProcMount != corev1.UnmaskedProcMount {
		out.MaskedPaths, out.ReadonlyPaths = oci.MaskedPaths(), oci.ReadonlyPaths()
	}
	if capabilities := own.Capabilities; capabilities != nil {
		out.Capabilities = &runtimeapi.Capability{
			AddCapabilities:  texts(capabilities.Add),
			DropCapabilities: texts(capabilities.Drop),
		}
	}
	uid, gid := first(own.RunAsUser, shared.RunAsUser), first(own.RunAsGroup, shared.RunAsGroup)
	name := pod.Annotations[annotations.User+container.Name]
	switch {
	case name != "" && (uid != nil || gid != nil):
		return nil, fmt.Errorf("pod %q: the annotation %s%s contradicts runAsUser or runAsGroup; remove one of them",
			pod.Name, annotations.User, container.Name)
	case name != "":
		out.RunAsUsername = name
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
	if isTrue(first(own.RunAsNonRoot, shared.RunAsNonRoot)) {
		if err := nonRoot(uid, out); err != nil {
			return nil, fmt.Errorf("%w (pod: %q, container: %s)", err, pod.Name, container.Name)
		}
	}
	return out, nil
}

// nonRoot rejects root, and user names, because only the image's /etc/passwd maps them to ids. The messages are the
// kubelet's.
func nonRoot(uid *int64, c *runtimeapi.LinuxContainerSecurityContext) error {
	switch {
	case uid != nil && *uid == 0:
		return fmt.Errorf("container's runAsUser breaks non-root policy")
	case c.RunAsUser != nil && c.RunAsUser.Value == 0, c.RunAsUser == nil && c.RunAsUsername == "":
		return fmt.Errorf("container has runAsNonRoot and image will run as root")
	case c.RunAsUser == nil:
		return fmt.Errorf("container has runAsNonRoot and image has non-numeric user (%s), cannot verify user is non-root", c.RunAsUsername)
	}
	return nil
}

func groupsPolicy(context *corev1.PodSecurityContext) runtimeapi.SupplementalGroupsPolicy {
	if policy := context.SupplementalGroupsPolicy; policy != nil && *policy == corev1.SupplementalGroupsPolicyStrict {
		return runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return runtimeapi.SupplementalGroupsPolicy_Merge
}

// seccompProfile returns the first set profile, else the runtime's default.
func seccompProfile(dir string, profiles ...*corev1.SeccompProfile) (*runtimeapi.SecurityProfile, error) {
	profile := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault}
	wish := firstOf(profiles)
	switch {
	case wish == nil:
	case wish.Type == corev1.SeccompProfileTypeUnconfined:
		profile.ProfileType = runtimeapi.SecurityProfile_Unconfined
	case wish.Type == corev1.SeccompProfileTypeLocalhost:
		if wish.LocalhostProfile == nil || !filepath.IsLocal(*wish.LocalhostProfile) {
			return nil, fmt.Errorf("localhostProfile must be set, to a path below the profile directory, if seccompProfile type is " +
				"Localhost")
		}
		if dir == "" {
			return nil, fmt.Errorf("seccompProfile %s: no profile directory is configured", *wish.LocalhostProfile)
		}
		profile.ProfileType = runtimeapi.SecurityProfile_Localhost
		profile.LocalhostRef = filepath.Join(dir, *wish.LocalhostProfile)
	}
	return profile, nil
}

// privileged reports whether the pod has a privileged container.
func privileged(pod *corev1.Pod) bool {
	return podspec.Any(&pod.Spec, func(c *corev1.Container) bool {
		return c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
	})
}

func isTrue(value *bool) bool { return value != nil && *value }

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
