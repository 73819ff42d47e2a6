package pod

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
)

// sandboxConfig is the pod as RunPodSandbox takes it.
func sandboxConfig(o *Options, attempt uint32) *runtimeapi.PodSandboxConfig {
	pod := o.Pod
	host, _ := o.hostname() // New has looked at it
	dns, _ := dnsConfig(o)
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{
			Name: pod.Name, Namespace: pod.Namespace, Uid: string(pod.UID), Attempt: attempt,
		},
		Hostname:     host,
		LogDirectory: o.LogDir,
		DnsConfig:    dns,
		PortMappings: portMappings(o),
		Labels:       sandboxLabels(pod),
		Annotations:  sandboxAnnotations(o),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			Resources: sandboxResources(pod),
			Overhead:  sandboxOverhead(pod),
			Sysctls:   sysctls(pod),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaceOptions(pod),
				Privileged:       privileged(pod),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}

// namespaceOptions are every pod's: one network and IPC namespace for the pod,
// and a process namespace for each container or one for all.
func namespaceOptions(pod *corev1.Pod) *runtimeapi.NamespaceOption {
	if shared := pod.Spec.ShareProcessNamespace; shared != nil && *shared {
		return &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_POD}
	}
	return &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
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

func sandboxAnnotations(o *Options) map[string]string {
	out := maps.Clone(o.Pod.Annotations)
	if out == nil {
		out = make(map[string]string)
	}
	for key, value := range map[string]string{
		annotations.Network: o.Network, annotations.Template: o.Template, annotations.Accel: o.Accel,
		annotations.PodLimits: wholeLimits(o.Pod), annotations.Unstated: unstated(o.Pod), annotations.Scratch: scratchLimit(o.Pod),
	} {
		if value != "" {
			out[key] = value
		}
	}
	volumeAnnotations(o.Pod, out)
	return out
}

func portMappings(o *Options) []*runtimeapi.PortMapping {
	out := append([]*runtimeapi.PortMapping(nil), o.Ports...)
	for _, container := range append(slices.Clone(o.Pod.Spec.InitContainers), o.Pod.Spec.Containers...) {
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

// launch is what a container's configuration needs to know beside the pod.
type launch struct {
	image    *runtimeapi.Image
	ref      string // what the image is created from
	restarts int32
	ips      []string
	target   string // id of the container whose processes it is to see, or empty
	// allocatable is what a container has that sets no limit.
	allocatable corev1.ResourceList
	// skipped, if set, is told of the keys that became no variables.
	skipped func(skipped)
	// images are the references of the volumes that are images.
	images map[string]string
}

// containerConfig is the container as CreateContainer takes it.
func containerConfig(ctx context.Context, o *Options, container *corev1.Container, with launch) (*runtimeapi.ContainerConfig, error) {
	env, err := resolveEnvironment(ctx, o, container, with)
	if err != nil {
		return nil, err
	}
	if with.skipped != nil {
		for _, note := range env.skipped {
			with.skipped(note)
		}
	}
	security, err := securityContext(o, container, with.image)
	if err != nil {
		return nil, err
	}
	mounts, err := containerMounts(o, container, with.images, env.lookup)
	if err != nil {
		return nil, err
	}
	if with.target != "" {
		security.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: with.target}
	}
	mounts = append(mounts, messageMount(o, container, with.restarts)...)
	if hosts, err := hostsMount(o, container, with.ips); err != nil {
		return nil, err
	} else if hosts != nil {
		mounts = append(mounts, hosts)
	}
	var envs []*runtimeapi.KeyValue
	for _, entry := range env.out {
		envs = append(envs, &runtimeapi.KeyValue{Key: entry.name, Value: []byte(entry.value)})
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: container.Name, Attempt: uint32(with.restarts)},
		Image:       &runtimeapi.ImageSpec{Image: with.ref, UserSpecifiedImage: container.Image},
		Command:     expandAll(container.Command, env.lookup),
		Args:        expandAll(container.Args, env.lookup),
		WorkingDir:  container.WorkingDir,
		Envs:        envs,
		Mounts:      mounts,
		Labels:      containerLabels(o.Pod, container),
		Annotations: containerAnnotations(o.Pod, container, with.restarts),
		LogPath:     logPath(container.Name, with.restarts),
		Stdin:       container.Stdin,
		StdinOnce:   container.StdinOnce,
		Tty:         container.TTY,
		StopSignal:  criSignal(container),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       containerResources(o.Pod, container),
			SecurityContext: security,
		},
	}, nil
}

// logPath is a container's log file within the pod's log directory.
func logPath(container string, restarts int32) string {
	return filepath.Join(container, strconv.Itoa(int(restarts))+".log")
}
