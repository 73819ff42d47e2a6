package podapi

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/moby/sys/capability"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/ulimit"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// sysctlName matches a name with dots or slashes between its parts.
var sysctlName = regexp.MustCompile(`^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$`)

func (c checker) podSecurity(context *corev1.PodSecurityContext) {
	const at = "spec.securityContext."
	c.id(at+"runAsUser", context.RunAsUser)
	c.id(at+"runAsGroup", context.RunAsGroup)
	c.id(at+"fsGroup", context.FSGroup)
	for i := range context.SupplementalGroups {
		c.id(fmt.Sprintf("%ssupplementalGroups[%d]", at, i), &context.SupplementalGroups[i])
	}
	if policy := context.SupplementalGroupsPolicy; policy != nil {
		oneOf(c, at+"supplementalGroupsPolicy", *policy, corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	}
	if policy := context.FSGroupChangePolicy; policy != nil {
		oneOf(c, at+"fsGroupChangePolicy", *policy, corev1.FSGroupChangeAlways, corev1.FSGroupChangeOnRootMismatch)
	}
	c.seccomp(context.SeccompProfile, at+"seccompProfile.")
	names := map[string]bool{}
	for i, sysctl := range context.Sysctls {
		field := fmt.Sprintf("%ssysctls[%d].name", at, i)
		if len(sysctl.Name) > 253 || !sysctlName.MatchString(sysctl.Name) {
			c.fault(field, "%q is not the name of a sysctl", sysctl.Name)
		}
		if names[sysctl.Name] {
			c.fault(field, "%q appears twice", sysctl.Name)
		}
		names[sysctl.Name] = true
	}
}

// containerSecurity checks a container's own security context.
func (c checker) containerSecurity(context *corev1.SecurityContext, at string) {
	if context == nil {
		return
	}
	at += "securityContext."
	c.id(at+"runAsUser", context.RunAsUser)
	c.id(at+"runAsGroup", context.RunAsGroup)
	c.capabilities(context.Capabilities, at+"capabilities.")
	c.seccomp(context.SeccompProfile, at+"seccompProfile.")
	if mount := context.ProcMount; mount != nil {
		oneOf(c, at+"procMount", *mount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if *mount == corev1.UnmaskedProcMount && (c.pod.HostUsers == nil || *c.pod.HostUsers) {
			c.fault(at+"procMount", "hostUsers must be false to use Unmasked")
		}
	}
	if escalation := context.AllowPrivilegeEscalation; escalation == nil || *escalation {
		return
	}
	if isTrue(context.Privileged) {
		c.fault(at+"allowPrivilegeEscalation", "cannot be false together with privileged")
	}
	if context.Capabilities == nil {
		return
	}
	for _, name := range context.Capabilities.Add {
		if name == "SYS_ADMIN" || name == "CAP_SYS_ADMIN" {
			c.fault(at+"allowPrivilegeEscalation", "cannot be false together with the capability SYS_ADMIN")
		}
	}
}

func (c checker) seccomp(profile *corev1.SeccompProfile, at string) {
	if profile == nil {
		return
	}
	oneOf(c, at+"type", profile.Type, corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault,
		corev1.SeccompProfileTypeUnconfined)
	file := profile.LocalhostProfile
	switch {
	case profile.Type != corev1.SeccompProfileTypeLocalhost && file != nil:
		c.fault(at+"localhostProfile", "can only be set when type is Localhost")
	case profile.Type == corev1.SeccompProfileTypeLocalhost && (file == nil || *file == ""):
		c.fault(at+"localhostProfile", "must be set when type is Localhost")
	case file != nil && (!filepath.IsLocal(*file) || slices.Contains(strings.Split(*file, "/"), "..")):
		c.fault(at+"localhostProfile", "%q is not a path below the profile directory", *file)
	}
}

func (c checker) capabilities(list *corev1.Capabilities, at string) {
	if list == nil {
		return
	}
	for field, names := range map[string][]corev1.Capability{"add": list.Add, "drop": list.Drop} {
		for i, name := range names {
			if !isCapability(string(name)) {
				c.fault(fmt.Sprintf("%s%s[%d]", at, field, i), "%q is not a capability", name)
			}
		}
	}
}

// isCapability accepts names with and without their prefix, in any case, and ALL, like container runtimes.
func isCapability(name string) bool {
	name = strings.TrimPrefix(strings.ToLower(name), "cap_")
	return name == "all" || slices.ContainsFunc(capability.ListKnown(), func(c capability.Cap) bool { return c.String() == name })
}

func (c checker) id(field string, id *int64) {
	if id != nil && (*id < 0 || *id > 1<<31-1) {
		c.fault(field, "%d is out of range", *id)
	}
}

// userName matches a user and optionally a group, each by name or number.
var userName = regexp.MustCompile(`^[^-+:\s\x00-\x1f][^:\s\x00-\x1f]{0,127}(:[^-+:\s\x00-\x1f][^:\s\x00-\x1f]{0,127})?$`)

// user checks the annotation for a container's user.
func (c checker) user(pod *corev1.Pod, key, name string) {
	const field = "metadata.annotations"
	container := containerNamed(pod, name)
	if container == nil {
		c.fault(field, "%q: the pod has no container %q", key, name)
		return
	}
	if value := pod.Annotations[key]; !userName.MatchString(value) {
		c.fault(field, "%q: %.64q is not NAME or NAME:GROUP", key, value)
	}
	own, all := container.SecurityContext, pod.Spec.SecurityContext
	if own != nil && (own.RunAsUser != nil || own.RunAsGroup != nil) || all != nil && (all.RunAsUser != nil || all.RunAsGroup != nil) {
		c.fault(field, "%q cannot be together with runAsUser or runAsGroup", key)
	}
}

// ulimits checks the annotation for the limits of a container's processes.
func (c checker) ulimits(pod *corev1.Pod, key, name string) {
	const field = "metadata.annotations"
	if containerNamed(pod, name) == nil {
		c.fault(field, "%q: the pod has no container %q", key, name)
	}
	if _, err := ulimit.ParseAll(pod.Annotations[key]); err != nil {
		c.fault(field, "%q: %v", key, err)
	}
}

func containerNamed(pod *corev1.Pod, name string) *corev1.Container {
	for c := range podspec.All(&pod.Spec) {
		if c.Name == name {
			return c
		}
	}
	return nil
}
