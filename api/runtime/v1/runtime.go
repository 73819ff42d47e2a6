// Package runtimev1 is what a runtime may offer beyond the CRI, in process: package pod
// asks its runtime for it. Over a runtime that lacks it, what the CRI has no field for
// cannot be kept, and is refused by name.
package runtimev1

import (
	"context"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// Runtime is a CRI runtime that keeps what the CRI has no field for. Its methods do what
// the CRI's of the same names do.
type Runtime interface {
	// RunPodSandboxWith keeps the options with the pod, for its containers and its
	// resizes. When ctx is cancelled it undoes what it has done, and returns then.
	RunPodSandboxWith(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string, o PodOptions) (string, error)
	CreateContainerWith(
		ctx context.Context, podID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig, o ContainerOptions,
	) (string, error)
	// ExecSyncClipped is ExecSync for who wants the first limit bytes of each stream
	// only: the rest is thrown away, and no error.
	ExecSyncClipped(
		ctx context.Context, id string, cmd []string, timeout time.Duration, limit int,
	) (stdout, stderr []byte, err error)
}

// PodOptions are a pod's. The zero value asks for nothing beyond the CRI.
type PodOptions struct {
	// Network is the kind of network: "user", "none" or "host-loopback"; empty is the
	// runtime's default.
	Network string `json:"network,omitempty"`
	// Accel is the accelerator: "kvm" or "tcg"; empty is the probed one.
	Accel string `json:"accel,omitempty"`
	// Cold asks for a boot of its own instead of a clone.
	Cold bool `json:"cold,omitempty"`
	// NoFork asks for a clone that shares nothing of its host's process with other pods.
	NoFork bool `json:"noFork,omitempty"`
	// WholeCPU and WholeMemory say that the sandbox's limit holds for the pod as a whole
	// and not only as the sum of its containers'.
	WholeCPU    bool `json:"wholeCPU,omitempty"`
	WholeMemory bool `json:"wholeMemory,omitempty"`
	// Unstated says that a container of the pod has no memory limit, so that the
	// sandbox's is not all that the pod may use. It is a hint for the VM's size.
	Unstated bool `json:"unstated,omitempty"`
	// ScratchBytes is what the pod may write to its disk; 0 is the runtime's default.
	ScratchBytes int64 `json:"scratchBytes,omitempty"`
	// FSGroup is the group that the volumes belong to; 0 is none.
	FSGroup int `json:"fsGroup,omitempty"`
	// EmptyDirs are the emptyDir volumes that are not plain directories on the disk, by
	// name.
	EmptyDirs map[string]containerv1.Dir `json:"emptyDirs,omitempty"`
	// HostPaths are where on the host the volumes lie that are directories of its, and which named
	// volumes (containerv1.VolumeName) those are that are such, by name.
	HostPaths map[string]containerv1.Share `json:"hostPaths,omitempty"`
	// Disks are those of HostPaths that are block devices whose file systems the pod's VM mounts, by name.
	Disks map[string]containerv1.Block `json:"disks,omitempty"`
	// Filled are the named volumes, by the pod's names, that get what the image has where they are mounted
	// while they are empty.
	Filled map[string]bool `json:"filled,omitempty"`
}

// Size is a terminal's; zero is not known.
type Size struct {
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// ContainerOptions are a container's. The zero value asks for nothing beyond the CRI.
type ContainerOptions struct {
	// StorageBytes is what its writable layer may hold; 0 is no limit of its own.
	StorageBytes int64 `json:"storageBytes,omitempty"`
	// Size is the size of the terminal when the program starts.
	Size Size `json:"size,omitzero"`
	// Rlimits replace the default limits of their types, such as RLIMIT_NOFILE.
	Rlimits []specs.POSIXRlimit `json:"rlimits,omitempty"`
}
