package engine

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
)

// PodRequest asks for a pod.
type PodRequest struct {
	// Key is unique among the pods of the instance.
	Key      string
	Identity Identity
	// Record is JSON that the door keeps with the pod or container.
	Record json.RawMessage
	Size   Size
	// Overhead is the VM's additional use of the host beyond the pod's own.
	Overhead store.Overhead
	// CgroupParent is an existing cgroup for the pod's cgroup on the host, as a path from the top of the hierarchy.
	// Empty means one of the engine's own.
	CgroupParent string

	Hostname string
	Sysctls  map[string]string
	// Network is the kind of network; empty means NetworkUser. Ports are published, DNS replaces the network's if
	// it is not nil, and Bandwidth limits the traffic.
	Network   network.Kind
	Ports     []network.Port
	DNS       *network.DNS
	Bandwidth network.Bandwidth
	// Tap is the VM's card in the network NetworkAdopted. UpdateNetwork configures it.
	Tap *network.Held
	// Accel is the accelerator; the engine probes if it is empty or Auto.
	Accel hypervisor.Accel
	// Cold asks for a boot instead of a clone. NoFork asks for a clone that shares no QEMU process memory with
	// other pods.
	Cold, NoFork bool
	// ScratchBytes is the size of the pod's scratch disk; 0 means the default.
	ScratchBytes int64
	// LogDirectory is created for the containers' logs; it may be empty.
	LogDirectory string
	// GiveUp undoes the start when the client cancels its request. No other client may then ask for the same pod.
	GiveUp bool
}

// Identity is the pod's identity for clients. Annotations are the user's; the shim gets them together with the
// engine's own, which take precedence.
type Identity struct {
	Name, Namespace, UID string
	Attempt              uint32
	Labels, Annotations  map[string]string
}

// Size is the size that a pod asks for.
type Size = store.Size

// ContainerRequest asks for a container in a pod.
type ContainerRequest struct {
	// Key is unique among the containers of the pod. Messages use Name.
	Key, Name string
	// Record is JSON that the door keeps with the pod or container.
	Record json.RawMessage
	// Spec is for the guest's runtime; the engine names its cgroup. Its mounts are the kernel's own file systems, and Mounts
	// follow them. Its hooks may only be StartContainer's, which run inside the container.
	Spec   *specs.Spec
	Mounts []containerv1.Mount
	// Adjust, if not nil, returns the specification to use instead of Spec for the container with this id. It must
	// have Spec's mounts. The engine calls it again, with another id, if it must create the container again. The
	// engine calls undo if the container is not created.
	Adjust func(ctx context.Context, id string) (spec *specs.Spec, undo func(), err error)
	// Root and the mounts of Spec name paths in the namespace Staging, unless that is the zero value.
	Root    containerv1.Root
	Staging store.Staging
	// Files locate on the host the files for mounts with source containerv1.Files.
	Files []store.Files
	// Stdio is the destination of the standard streams. The File of a Log is a path of the host.
	Stdio containerv1.Stdio
	// TTY gives the container a terminal.
	TTY        bool
	StopSignal int
	// Termination is the termination message file in the container and on the host; it may be nil.
	Termination *store.Termination
}

// check refuses invalid requests and features that do not work yet.
func (r *ContainerRequest) check() error {
	if r.Key == "" || r.Spec == nil || r.Root == nil {
		return failure.Invalid("a container needs a key, a specification and a root")
	}
	if err := checkHooks(r.Spec.Hooks); err != nil {
		return err
	}
	return containerv1.Check(containerv1.Container{Root: r.Root, Mounts: r.Mounts, Stdio: r.Stdio})
}

// checkHooks refuses the hooks that run on the host, which are the door's.
func checkHooks(h *specs.Hooks) error {
	if h == nil {
		return nil
	}
	for name, hooks := range map[string][]specs.Hook{
		"prestart": h.Prestart, "createRuntime": h.CreateRuntime, "createContainer": h.CreateContainer, //nolint:staticcheck // old clients'
		"poststart": h.Poststart, "poststop": h.Poststop,
	} {
		if len(hooks) > 0 {
			return failure.Invalid("the %s hook %.128q must be run by the door: the guest cannot run it", name, hooks[0].Path)
		}
	}
	return nil
}

// disksOf returns the ids of the images that a container gets as disks, the root's first.
func disksOf(root containerv1.Root, mounts []containerv1.Mount) (ids []string) {
	if root, ok := root.(containerv1.Image); ok {
		ids = append(ids, root.ID)
	}
	for _, m := range mounts {
		if img, ok := m.Source.(containerv1.Image); ok && !slices.Contains(ids, img.ID) {
			ids = append(ids, img.ID)
		}
	}
	return ids
}

// hasEmptyDirs reports whether one of the mounts lies on the pod's scratch disk.
func hasEmptyDirs(mounts []containerv1.Mount) bool {
	return slices.ContainsFunc(mounts, func(m containerv1.Mount) bool {
		dir, ok := m.Source.(containerv1.Dir)
		return ok && dir.Medium == containerv1.Disk
	})
}

// The kinds of networks that pods ask for.
const (
	NetworkNone         = network.KindNone
	NetworkUser         = network.KindUser
	NetworkHostLoopback = network.KindHostLoopback
	NetworkAdopted      = network.KindAdopted
)

// ReadPorts parses published ports like network.ParsePorts. Host port 0 means that the engine chooses one.
func ReadPorts(texts []string) ([]network.Port, error) {
	var ports []network.Port
	for _, text := range texts {
		some, err := network.ParsePorts(text)
		if err != nil {
			return nil, err
		}
		ports = append(ports, some...)
	}
	return ports, nil
}

// ParsePorts is like ReadPorts but chooses a free port for each host port 0. The pod keeps that port when its VM is
// replaced.
func ParsePorts(texts []string) ([]network.Port, error) {
	ports, err := ReadPorts(texts)
	if err != nil {
		return nil, err
	}
	return network.ChooseFree(ports)
}

// doorPrefix begins the keys of pods for doors in other processes. Other keys begin with a Kubernetes namespace,
// which contains no colon.
const doorPrefix = "door:"

// DoorKey returns the engine's key of a pod that a door in another process calls key. A door's name must not
// contain a slash.
func DoorKey(door, key string) string { return doorPrefix + door + "/" + key }

// Door returns the name of the door in another process that asked for the pod, and its key there. Both are empty
// for a pod of the engine's own process.
func (p *Pod) Door() (door, key string) {
	rest, ok := strings.CutPrefix(p.Key, doorPrefix)
	if !ok {
		return "", ""
	}
	door, key, _ = strings.Cut(rest, "/")
	return door, key
}
