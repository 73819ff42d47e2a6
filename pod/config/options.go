package config

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/place"
	"github.com/bulkhead-project/bulkhead/internal/ulimit"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Options are a pod and the part of its configuration that is not in its specification. Neither they nor the pod may be
// changed while in use.
type Options struct {
	// Pod is the defaulted and validated pod (package podapi) with a UID.
	Pod *corev1.Pod
	// LogDir is the pod's own log directory. The path of a log is LogDir/<container>/<restart count>.log.
	LogDir string
	// MessageDir is the pod's own directory for termination messages. If it is empty, they are not read.
	MessageDir string
	// VolumeDir is a directory of the pod's own, which is removed with it. The host paths of the pod's volumes are
	// below it. ConfigMaps, Secrets and the downward API are written there. An emptyDir has no files there: the engine
	// identifies it by its path. Empty means /var/lib/kubelet/pods/<uid>/volumes.
	VolumeDir string
	// Objects are the ConfigMaps and Secrets of the pod's namespace; nil means none.
	Objects volume.Objects
	// Services, if set, returns the Services of the pod's namespace and of the API server, for variables. It may block
	// for a moment.
	Services func(ctx context.Context) ([]*corev1.Service, error)
	// SoftStorage lets containers write somewhat beyond a limit of ephemeral storage, because the caller ends the pod
	// for that.
	SoftStorage bool
	// Claimed are the host's places of the volumes that are volume.Claimed, by volume name. If nil, claims are named
	// volumes of the engine.
	Claimed map[string]volume.Place
	// Places are the rules for host paths that no pod may get, or that are not created for pods.
	Places place.Rules
	// HostsFile is the file for the pod's /etc/hosts; its directory must exist. If it is empty, the runtime makes the
	// file, and hostAliases are rejected.
	HostsFile string
	// SeccompDir is the directory of Localhost profiles. If it is empty, such profiles are rejected.
	SeccompDir string
	// DNS, if set, returns the host's resolver configuration, over which the pod's own is merged. If nil, the runtime's
	// applies.
	DNS func() *runtimeapi.DNSConfig
	// ClusterDomain is the domain for a pod with a subdomain; empty means cluster.local.
	ClusterDomain string

	Network  string // "user", "none" or empty for the engine's default
	Template string // "off" or empty
	Warm     string // "off" or empty
	Accel    string // "kvm", "tcg" or empty for the probed one
	// Size is the initial size of the containers' terminals.
	Size runtimev1.Size
	// Ports are published beside the pod's own hostPorts.
	Ports []*runtimeapi.PortMapping
	// HostIP is shown in the status.
	HostIP string
	// NodeName is the value of spec.nodeName in environment variables if the pod has none.
	NodeName string
}

// Check rejects a pod that cannot be run: one without name, UID or container, or with a setting that these options do
// not support.
func (o *Options) Check() error {
	pod := o.Pod
	switch {
	case pod == nil:
		return errors.New("no pod given")
	case pod.Name == "" || pod.Namespace == "" || pod.UID == "":
		return fmt.Errorf("pod %q: name, namespace and uid are required", pod.Name)
	case len(pod.Spec.Containers) == 0:
		return fmt.Errorf("pod %s: no containers", pod.Name)
	case o.HostsFile == "" && len(pod.Spec.HostAliases) > 0:
		return fmt.Errorf("pod %s: hostAliases are not supported without a directory for the hosts file", pod.Name)
	}
	if err := refuseInternal(pod.Annotations); err != nil {
		return fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	for key, text := range pod.Annotations {
		if !strings.HasPrefix(key, annotations.Ulimits) {
			continue
		}
		if _, err := ulimit.ParseAll(text); err != nil {
			return fmt.Errorf("pod %s: annotation %s: %w", pod.Name, key, err)
		}
	}
	if _, err := o.hostname(); err != nil {
		return fmt.Errorf("pod %s: %w", pod.Name, err)
	}
	return nil
}

// AllObjects returns Objects, or volume.None if it is nil.
func (o *Options) AllObjects() volume.Objects {
	if o.Objects == nil {
		return volume.None{}
	}
	return o.Objects
}

// Volumes returns VolumeDir, or by default the kubelet's directory.
func (o *Options) Volumes() string {
	if o.VolumeDir == "" {
		return filepath.Join("/var/lib/kubelet/pods", string(o.Pod.UID), "volumes")
	}
	return o.VolumeDir
}
