package config

import (
	"context"
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Launch is what a container's configuration needs to know beside the pod.
type Launch struct {
	Image    *runtimeapi.Image
	Ref      string // what the image is created from
	Restarts int32
	IPs      []string // of the pod, the first one first
	Target   string   // id of the container whose processes it is to see, or empty
	// Allocatable is what a container has that sets no limit.
	Allocatable corev1.ResourceList
	// Skipped, if set, is told of the keys that became no variables.
	Skipped func(Skipped)
	// Note, if set, is told of what variables refer to and do not get, with the reason of an event.
	Note func(reason, message string)
	// Images are the references of the volumes that are images, by the volumes'
	// names.
	Images map[string]string
}

// Container is the container as CreateContainer takes it. It writes the pod's
// hosts file. An error is a reference that leads nowhere, or a wish that
// contradicts another.
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

// LogPath is a container's log file within the pod's log directory.
func LogPath(container string, restarts int32) string {
	return filepath.Join(container, strconv.Itoa(int(restarts))+".log")
}
