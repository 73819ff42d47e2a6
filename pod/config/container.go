package config

import (
	"context"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Launch is the input for a container's configuration beside the pod.
type Launch struct {
	Image    *runtimeapi.Image
	Ref      string // the reference to create the container from
	Restarts int32
	IPs      []string // of the pod, the primary one first
	Target   string   // id of the container in which it sees the processes, or empty
	// Allocatable are the resources of a container without limits.
	Allocatable corev1.ResourceList
	// Skipped, if set, is called with the keys that are not valid names of variables.
	Skipped func(Skipped)
	// Note, if set, is called for references of variables that cannot be resolved, with the reason of an event.
	Note func(reason, message string)
	// Images are the references of the image volumes, by volume name.
	Images map[string]string
}

// Container returns the container's configuration for CreateContainer, and writes the pod's hosts file. It returns an
// error for a reference that cannot be resolved, and for contradictory settings.
func Container(ctx context.Context, o *Options, container *corev1.Container, with Launch) (*runtimeapi.ContainerConfig, error) {
	env, err := resolveEnvironment(ctx, o, container, with)
	if err != nil {
		return nil, err
	}
	if with.Skipped != nil {
		for _, note := range env.skipped {
			with.Skipped(note)
		}
	}
	security, err := securityContext(o, container, with.Image)
	if err != nil {
		return nil, err
	}
	mounts, err := containerMounts(o, container, with.Images, env.lookup)
	if err != nil {
		return nil, err
	}
	if with.Target != "" {
		security.NamespaceOptions = &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: with.Target}
	}
	mounts = append(mounts, messageMount(o, container, with.Restarts)...)
	if hosts, err := hostsMount(o, container, with.IPs); err != nil {
		return nil, err
	} else if hosts != nil {
		mounts = append(mounts, hosts)
	}
	var envs []*runtimeapi.KeyValue
	for _, entry := range env.out {
		envs = append(envs, &runtimeapi.KeyValue{Key: entry.name, Value: []byte(entry.value)})
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: container.Name, Attempt: uint32(with.Restarts)},
		Image:       &runtimeapi.ImageSpec{Image: with.Ref, UserSpecifiedImage: container.Image},
		Command:     expandAll(container.Command, env.lookup),
		Args:        expandAll(container.Args, env.lookup),
		WorkingDir:  container.WorkingDir,
		Envs:        envs,
		Mounts:      mounts,
		Devices:     containerDevices(o, container),
		Labels:      containerLabels(o.Pod, container),
		Annotations: containerAnnotations(o.Pod, container, with.Restarts),
		LogPath:     LogPath(container.Name, with.Restarts),
		Stdin:       container.Stdin,
		StdinOnce:   container.StdinOnce,
		Tty:         container.TTY,
		StopSignal:  criSignal(container),
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       Resources(o.Pod, container),
			SecurityContext: security,
		},
	}, nil
}

// LogPath returns a container's log file, relative to the pod's log directory.
func LogPath(container string, restarts int32) string {
	return filepath.Join(container, strconv.Itoa(int(restarts))+".log")
}
