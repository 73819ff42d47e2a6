package api

import "time"

// Event is something that happened to a pod, with the fields of core/v1's Event.
type Event struct {
	Kind           string          `json:"kind"`
	APIVersion     string          `json:"apiVersion"`
	Type           string          `json:"type"` // Normal or Warning
	Reason         string          `json:"reason"`
	Message        string          `json:"message"`
	Count          int             `json:"count"`
	FirstTimestamp time.Time       `json:"firstTimestamp"`
	LastTimestamp  time.Time       `json:"lastTimestamp"`
	InvolvedObject ObjectReference `json:"involvedObject"`
}

// ObjectReference names the subject of an event. FieldPath is "spec.containers{NAME}" for a container.
type ObjectReference struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Name       string `json:"name"`
	Namespace  string `json:"namespace"`
	UID        string `json:"uid"`
	FieldPath  string `json:"fieldPath,omitempty"`
}

// PodStats is the resource usage of a running pod. Counters start with its VM.
type PodStats struct {
	Name      string    `json:"name"`
	Namespace string    `json:"namespace"`
	UID       string    `json:"uid"`
	Status    string    `json:"status"`
	Created   time.Time `json:"created"`
	Restarts  int       `json:"restarts"`
	// Time is when the figures were taken. It is zero without figures: the pod does not run or is paused.
	Time        time.Time        `json:"time,omitzero"`
	CPU         time.Duration    `json:"cpuNanoseconds"` // used by its containers
	Memory      int64            `json:"memoryBytes"`    // their working sets
	MemoryLimit int64            `json:"memoryLimitBytes"`
	HostMemory  int64            `json:"hostMemoryBytes,omitempty"` // host memory that the pod's VM takes; 0: unknown
	Network     *Counters        `json:"network,omitempty"`         // received and sent; nil without a network
	Disk        Counters         `json:"disk"`                      // read and written
	PIDs        int              `json:"pids"`
	Containers  []ContainerStats `json:"containers,omitempty"`
}

// Counters are bytes in both directions.
type Counters struct {
	In  int64 `json:"inBytes"`
	Out int64 `json:"outBytes"`
}

// ContainerStats is the resource usage of a running container.
type ContainerStats struct {
	Name        string        `json:"name"`
	CPU         time.Duration `json:"cpuNanoseconds"`
	Memory      int64         `json:"memoryBytes"`
	MemoryLimit int64         `json:"memoryLimitBytes,omitempty"` // 0: the pod's
	Writable    int64         `json:"writableLayerBytes"`
	PIDs        int           `json:"pids"`
	Restarts    int           `json:"restarts"`
}
