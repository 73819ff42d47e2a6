package config

import (
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MessageFile returns the host's file for the termination message of one instance.
func MessageFile(o *Options, container string, restarts int32) string {
	return filepath.Join(o.MessageDir, container, strconv.Itoa(int(restarts)))
}

// messageMount mounts that file at the container's terminationMessagePath.
func messageMount(o *Options, spec *corev1.Container, restarts int32) []*runtimeapi.Mount {
	if o.MessageDir == "" || spec.TerminationMessagePath == "" {
		return nil
	}
	return []*runtimeapi.Mount{{ContainerPath: spec.TerminationMessagePath, HostPath: MessageFile(o, spec.Name, restarts)}}
}
