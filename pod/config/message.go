package config

import (
	"path/filepath"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MessageFile is the host's file for the last words of one instance.
func MessageFile(o *Options, container string, restarts int32) string {
	return filepath.Join(o.MessageDir, container, strconv.Itoa(int(restarts)))
}

// messageMount lets the runtime have the file where the container expects it.
func messageMount(o *Options, spec *corev1.Container, restarts int32) []*runtimeapi.Mount {
	if o.MessageDir == "" || spec.TerminationMessagePath == "" {
		return nil
	}
	return []*runtimeapi.Mount{{ContainerPath: spec.TerminationMessagePath, HostPath: MessageFile(o, spec.Name, restarts)}}
}
