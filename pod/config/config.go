// Package config translates a Pod to the CRI's configuration of its sandbox and of each of its containers. The package
// calls no runtime and keeps no state: the same Options and Launch give the same configuration.
package config

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// Sandbox returns the pod's configuration for RunPodSandbox.
func Sandbox(o *Options, attempt uint32) *runtimeapi.PodSandboxConfig {
	pod := o.Pod
	host, _ := o.hostname() // Check has validated it
	dns, _ := DNSOf(o)
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		Hostname:     host,
		LogDirectory: o.LogDir,
		DnsConfig:    dns,
		PortMappings: portMappings(o),
		Labels:       sandboxLabels(pod),
		Annotations:  sandboxAnnotations(o.Pod),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			Resources: SandboxResources(pod),
			Overhead:  SandboxOverhead(pod),
			Sysctls:   sysctls(pod),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaceOptions(pod),
				Privileged:       privileged(pod),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}

// namespaceOptions returns the pod's namespaces: one network, unless it is the host's, one IPC namespace, and a process
// namespace for each container or one for all.
func namespaceOptions(pod *corev1.Pod) *runtimeapi.NamespaceOption {
	out := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if pod.Spec.HostNetwork {
		out.Network = runtimeapi.NamespaceMode_NODE
	}
	if shared := pod.Spec.ShareProcessNamespace; shared != nil && *shared {
		out.Pid = runtimeapi.NamespaceMode_POD
	}
	return out
}

func sysctls(pod *corev1.Pod) map[string]string {
	out := make(map[string]string)
	if context := pod.Spec.SecurityContext; context != nil {
		for _, sysctl := range context.Sysctls {
			out[sysctl.Name] = sysctl.Value
		}
	}
	return out
}

func sandboxAnnotations(pod *corev1.Pod) map[string]string {
	if pod.Annotations == nil {
		return make(map[string]string)
	}
	return maps.Clone(pod.Annotations)
}

func portMappings(o *Options) []*runtimeapi.PortMapping {
	out := append([]*runtimeapi.PortMapping(nil), o.Ports...)
	for container := range podspec.All(&o.Pod.Spec) {
		for _, port := range container.Ports {
			if port.HostPort == 0 {
				continue
			}
			out = append(out, &runtimeapi.PortMapping{
				Protocol:      runtimeapi.Protocol(runtimeapi.Protocol_value[string(port.Protocol)]),
				ContainerPort: port.ContainerPort, HostPort: port.HostPort, HostIp: port.HostIP,
			})
		}
	}
	return out
}
