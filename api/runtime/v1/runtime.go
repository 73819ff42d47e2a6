// Package runtimev1 defines options of a runtime beyond the CRI, for callers in the same process. Package pod
// refuses them by name if its runtime does not support them.
package runtimev1

import (
	"context"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
)

// Runtime is a CRI runtime with options for which the CRI has no field. Its methods are like the CRI's methods of
// the same names.
type Runtime interface {
	// RunPodSandboxWith stores the options for the pod's containers and resizes. If ctx is cancelled, it undoes its
	// work before it returns.
	RunPodSandboxWith(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string, o PodOptions) (string, error)
	CreateContainerWith(
		ctx context.Context, podID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig, o ContainerOptions,
	) (string, error)
	// ExecSyncClipped is like ExecSync, but keeps only the first limit bytes of each stream. It discards the rest
	// without an error.
	ExecSyncClipped(
		ctx context.Context, id string, cmd []string, timeout time.Duration, limit int,
	) (stdout, stderr []byte, err error)
}

// PodOptions are the options of a pod. The zero value asks for nothing beyond the CRI.
type PodOptions struct {
	// Network is the kind of network: "user", "none" or "host-loopback"; empty selects the runtime's default.
	Network string `json:"network,omitempty"`
	// Accel is the accelerator: "kvm" or "tcg"; empty selects the result of the probe.
	Accel string `json:"accel,omitempty"`
	// Cold asks for a boot instead of a clone.
	Cold bool `json:"cold,omitempty"`
	// NoFork asks for a clone that shares no QEMU process memory with other pods.
	NoFork bool `json:"noFork,omitempty"`
	// WholeCPU and WholeMemory mean that the sandbox's limit applies to the pod as a whole, and not only as the sum
	// of its containers' limits.
	WholeCPU    bool `json:"wholeCPU,omitempty"`
	WholeMemory bool `json:"wholeMemory,omitempty"`
	// Unstated means that a container of the pod has no memory limit, so that the pod may use more than the
	// sandbox's limit. It is a hint for the VM's size.
	Unstated bool `json:"unstated,omitempty"`
	// ScratchBytes is the size of the pod's scratch disk; 0 selects the runtime's default.
	ScratchBytes int64 `json:"scratchBytes,omitempty"`
	// FSGroup is the group of the volumes; 0 means none.
	FSGroup int `json:"fsGroup,omitempty"`
	// EmptyDirs are the emptyDir volumes by name, except plain directories on the disk.
	EmptyDirs map[string]containerv1.Dir `json:"emptyDirs,omitempty"`
	// HostPaths are the volumes that are directories of the host or named volumes (containerv1.VolumeName), by
	// name.
	HostPaths map[string]containerv1.Share `json:"hostPaths,omitempty"`
	// Disks are the volumes of HostPaths that are block devices with file systems for the pod's VM to mount, by
	// name.
	Disks map[string]containerv1.Block `json:"disks,omitempty"`
	// Filled are the named volumes, by the pod's names, that are filled from the image at their mount points while
	// they are empty.
	Filled map[string]bool `json:"filled,omitempty"`
}

// Size is the size of a terminal; zero means unknown.
type Size struct {
	Width  uint16 `json:"width"`
	Height uint16 `json:"height"`
}

// ContainerOptions are the options of a container. The zero value asks for nothing beyond the CRI.
type ContainerOptions struct {
	// StorageBytes is the limit of its writable layer; 0 means no limit of its own.
	StorageBytes int64 `json:"storageBytes,omitempty"`
	// Size is the size of the terminal when the program starts.
	Size Size `json:"size,omitzero"`
	// Rlimits replace the default limits of their types, such as RLIMIT_NOFILE.
	Rlimits []specs.POSIXRlimit `json:"rlimits,omitempty"`
}
