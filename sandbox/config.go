package sandbox

import (
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// ConfigVersion is the version of Config's stored form.
const ConfigVersion = 1

// Config is what a pod's machine is made from. The door that creates the
// sandbox writes it, once, before the machine starts; nothing changes it later.
// It holds no environment and no secret.
type Config struct {
	Version     int               `json:"version"`
	ID          string            `json:"id"`       // 64 hexadecimal digits
	Instance    string            `json:"instance"` // the engine that owns it
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	UID         string            `json:"uid"`
	Attempt     uint32            `json:"attempt"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Created     time.Time         `json:"created"`

	Hostname  string             `json:"hostname"`
	Resolv    string             `json:"resolv"`
	Hosts     string             `json:"hosts"`
	Sysctls   map[string]string  `json:"sysctls,omitempty"`
	Network   *agentv1.Network   `json:"network,omitempty"`
	ShmBytes  int64              `json:"shmBytes,omitempty"`
	Machine   hypervisor.Machine `json:"machine"`
	MemoryMiB int                `json:"memoryMiB"` // what the machine is grown to before its first container
	Limits    agentv1.PodLimits  `json:"limits,omitzero"`
	// ScratchBytes is what the pod may write to its scratch disk; 0 is all of it.
	ScratchBytes int64 `json:"scratchBytes,omitempty"`
}
