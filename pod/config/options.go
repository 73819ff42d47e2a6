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

// Options are a pod and what of its configuration its specification does not
// say. They are not changed, and the pod must not be changed while it is in use.
type Options struct {
	// Pod is the defaulted and validated pod (package podapi) with a UID.
	Pod *corev1.Pod
	// LogDir is the pod's own log directory; a container logs to
	// LogDir/<container>/<restart count>.log.
	LogDir string
	// MessageDir is the pod's own directory for the termination messages of its
	// containers; with none they are not read.
	MessageDir string
	// VolumeDir is where the host paths of the pod's volumes are named, and
	// where those of ConfigMaps, Secrets and the downward API are written: a
	// directory of the pod's own, which goes with it. Of an emptyDir nothing
	// lies there: the engine knows it by its path. Empty is
	// /var/lib/kubelet/pods/<uid>/volumes.
	VolumeDir string
	// Objects are the ConfigMaps and Secrets of the pod's namespace; nil is
	// none.
	Objects volume.Objects
	// Services, if set, are the Services of the pod's namespace and that of the API server, for
	// variables. It may wait a moment for them.
	Services func(ctx context.Context) ([]*corev1.Service, error)
	// SoftStorage has writes beyond a limit of ephemeral storage fail only somewhat beyond it: who runs the
	// pod ends it then.
	SoftStorage bool
	// Claimed is where on the host the volumes lie that are volume.Claimed, by name. Nil is a machine whose claims are
	// volumes of its own, by name.
	Claimed map[string]volume.Place
	// Places says what no pod gets of the host, and where nothing is made for it.
	Places place.Rules
	// HostsFile is where the pod's /etc/hosts is written; its directory exists.
	// Empty leaves the file to the runtime, and hostAliases are refused.
	HostsFile string
	// SeccompDir is the directory of the profiles of type Localhost. Empty
	// refuses them.
	SeccompDir string
	// DNS, if set, is the machine's resolver configuration, which the pod's own is
	// laid over. Without it the runtime has its own.
	DNS func() *runtimeapi.DNSConfig
	// ClusterDomain ends the name of a pod with a subdomain; empty is cluster.local.
	ClusterDomain string

	Network  string // "user", "none" or empty for the engine's default
	Template string // "off" or empty
	Warm     string // "off" or empty
	Accel    string // "kvm", "tcg" or empty for the probed one
	// Size is that of the terminals when the programs of the containers start.
	Size runtimev1.Size
	// Ports are published beside the pod's own hostPorts.
	Ports []*runtimeapi.PortMapping
	// HostIP is shown in the status.
	HostIP string
	// NodeName is what spec.nodeName is for the environment where the pod has
	// none.
	NodeName string
}

// Check refuses a pod that cannot be run: it lacks a name, a UID or a container,
// or it asks for what these options cannot give.
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

// AllObjects are Objects, or none.
func (o *Options) AllObjects() volume.Objects {
	if o.Objects == nil {
		return volume.None{}
	}
	return o.Objects
}

// Volumes is VolumeDir, or the kubelet's.
func (o *Options) Volumes() string {
	if o.VolumeDir == "" {
		return filepath.Join("/var/lib/kubelet/pods", string(o.Pod.UID), "volumes")
	}
	return o.VolumeDir
}
