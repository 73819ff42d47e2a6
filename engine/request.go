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

// PodRequest asks for a pod machine.
type PodRequest struct {
	// Key is the name that one pod of the instance at a time has.
	Key      string
	Identity Identity
	// Record is the door's own, JSON, for it to find again.
	Record json.RawMessage
	Size   Size
	// Overhead is what the VM may take on the host beside the pod's own.
	Overhead store.Overhead
	// CgroupParent is the group of another's that the pod's on the host is to be in, named from
	// the top of the hierarchies; empty is one of the engine's own.
	CgroupParent string

	Hostname string
	Sysctls  map[string]string
	// Network is the kind of network; empty is NetworkUser. What the pod asks of it
	// follows: ports to publish, its own DNS (nil is the network's), a bandwidth.
	Network   network.Kind
	Ports     []network.Port
	DNS       *network.DNS
	Bandwidth network.Bandwidth
	// Accel is the accelerator; empty and Auto are probed.
	Accel hypervisor.Accel
	// Cold asks for a boot of its own instead of a clone, NoFork for a clone that shares
	// nothing of its host's process with other pods.
	Cold, NoFork bool
	// ScratchBytes is what the pod may write to its disk; 0 is the default size.
	ScratchBytes int64
	// LogDirectory is made for the containers' logs; empty is none.
	LogDirectory string
	// GiveUp has the start be undone when who asked for it has cancelled that. Nobody else asks for
	// the same pod then.
	GiveUp bool
}

// Identity is what others call the pod. Its Annotations are the user's: the
// engine's own win over them in what the shim is told.
type Identity struct {
	Name, Namespace, UID string
	Attempt              uint32
	Labels, Annotations  map[string]string
}

// Size is what a pod asks for.
type Size = store.Size

// ContainerRequest asks for a container in a pod.
type ContainerRequest struct {
	// Key is the name that one container of the pod at a time has, Name what
	// messages call it.
	Key, Name string
	// Record is the door's own, JSON, for it to find again.
	Record json.RawMessage
	// Spec is for the guest's runtime; the engine names its cgroup. Its mounts that
	// are the project's own are those of package containerv1.
	Spec *specs.Spec
	// Adjust, if not nil, gives the specification of the container that gets this id, in the
	// place of Spec, whose mounts it has. It may be called again, with another id, for a
	// container that had to be made again; undo is called if the container is not made.
	Adjust func(ctx context.Context, id string) (spec *specs.Spec, undo func(), err error)
	Root   containerv1.Root
	// Files say where on the host the files lie of the mounts whose source is
	// containerv1.Files.
	Files []store.Files
	// Stdio is where the standard streams lead; a Log's File is a path of the host.
	Stdio containerv1.Stdio
	// Hooks are run by the engine and not by the guest's runtime: Spec has none.
	Hooks containerv1.Hooks
	// TTY gives it a terminal.
	TTY        bool
	StopSignal int
	// Termination is where its last words are and where they go; nil for none.
	Termination *store.Termination
}

// check refuses what no container can be, and what does not work yet. It returns the
// mounts of the specification that are the project's own.
func (r *ContainerRequest) check() ([]containerv1.Mount, error) {
	if r.Key == "" || r.Spec == nil || r.Root == nil {
		return nil, failure.Invalid("a container needs a key, a specification and a root")
	}
	if r.Spec.Hooks != nil {
		return nil, failure.Invalid("the hooks of a container stand beside its specification, not in it")
	}
	var mounts []containerv1.Mount
	for _, m := range r.Spec.Mounts {
		mount, ours, err := containerv1.ParseMount(m.Destination, m.Type, m.Source, m.Options)
		if err != nil {
			return nil, err
		}
		if ours {
			mounts = append(mounts, mount)
		}
	}
	return mounts, containerv1.Check(containerv1.Container{Root: r.Root, Mounts: mounts, Stdio: r.Stdio, Hooks: r.Hooks})
}

// disksOf are the ids of the images whose disks a container gets, the root's first.
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

// hasEmptyDirs tells whether one of the mounts lies on the pod's disk.
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
)

// ReadPorts reads published ports as network.ParsePorts has them. A host port of 0 is one that is to be chosen.
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

// ParsePorts is ReadPorts, in the same order. A host port of 0 becomes a free one at
// once, so that the pod keeps it when its VM is replaced.
func ParsePorts(texts []string) ([]network.Port, error) {
	ports, err := ReadPorts(texts)
	if err != nil {
		return nil, err
	}
	return network.ChooseFree(ports)
}

// doorPrefix begins the keys of pods that a door in another process has asked for. No
// Kubernetes namespace, with which other keys begin, has a colon.
const doorPrefix = "door:"

// DoorKey is the key of the pod that a door in another process calls key. A door's
// name has no slash.
func DoorKey(door, key string) string { return doorPrefix + door + "/" + key }

// Door is the name of the door in another process that has asked for the pod, and the
// key that it calls the pod by. Both are empty for a pod of the engine's own process.
func (p *Pod) Door() (door, key string) {
	rest, ok := strings.CutPrefix(p.Key, doorPrefix)
	if !ok {
		return "", ""
	}
	door, key, _ = strings.Cut(rest, "/")
	return door, key
}
