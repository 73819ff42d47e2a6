package cri

import "time"

// Facts are about a pod's machine.
type Facts struct {
	ID        string  `json:"id"`
	State     string  `json:"state"` // ready, running, paused, stopped
	Accel     string  `json:"accel"`
	AccelNote string  `json:"accelNote,omitempty"` // why not a better one
	Network   string  `json:"network"`             // user, restricted, none
	NetNote   string  `json:"networkNote,omitempty"`
	Clone     bool    `json:"clone"`  // of a template; else a cold boot
	Pooled    bool    `json:"pooled"` // was ready before the pod was wanted
	Template  string  `json:"template,omitempty"`
	VMPID     int     `json:"vmPID,omitempty"`
	ShimPID   int     `json:"shimPID,omitempty"`
	VCPUs     int     `json:"vcpus"`
	MemoryMiB int64   `json:"memoryMiB"`
	Phases    []Phase `json:"phases,omitempty"` // of the start: the engine's, then the machine's
	Exit      string  `json:"exit,omitempty"`   // why the machine ended
	// Console and ShimLog are files on the host, bounded; their content is
	// hostile.
	Console string `json:"console,omitempty"`
	ShimLog string `json:"shimLog,omitempty"`
	Ports   []Port `json:"ports,omitempty"`
}

// Phase is one step of a start and what it cost.
type Phase struct {
	Name string        `json:"name"`
	Took time.Duration `json:"took"`
}

// Port is a published port with the host port that it got.
type Port struct {
	HostIP   string `json:"hostIP"`
	HostPort int    `json:"hostPort"`
	PodPort  int    `json:"podPort"`
}

// ExitError is returned by ExecSync for a command that ran and ended with
// another code than 0. It has the methods of k8s.io/utils/exec.ExitError.
type ExitError struct{ Code int }
