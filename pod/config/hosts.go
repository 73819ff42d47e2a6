package config

import (
	"fmt"
	"os"
	"path"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const hostsPath = "/etc/hosts"

// hostsMount writes the pod's hosts file and mounts it, as the kubelet does for every container that has no mount
// there. It returns nil if the options name no file; the runtime's file is then used.
func hostsMount(o *Options, container *corev1.Container, ips []string) (*runtimeapi.Mount, error) {
	if o.HostsFile == "" {
		return nil, nil
	}
	for _, mount := range container.VolumeMounts {
		if path.Clean(mount.MountPath) == hostsPath {
			return nil, nil
		}
	}
	text := hostsFile(o.names(), ips, o.Pod.Spec.HostAliases)
	// Write in place: if the runtime itself mounts the file, the containers share it.
	if err := os.WriteFile(o.HostsFile, []byte(text), 0o644); err != nil {
		return nil, fmt.Errorf("write the pod's hosts file: %w", err)
	}
	readonly := container.SecurityContext != nil && container.SecurityContext.ReadOnlyRootFilesystem != nil &&
		*container.SecurityContext.ReadOnlyRootFilesystem
	return &runtimeapi.Mount{ContainerPath: hostsPath, HostPath: o.HostsFile, Readonly: readonly}, nil
}
