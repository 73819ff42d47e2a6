package sandbox

import (
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Phase is one step of the start and what it cost.
type Phase struct {
	Name         string `json:"name"`
	Microseconds int64  `json:"microseconds"`
}

// Status is the sandbox at one moment. It is the caller's own copy.
type Status struct {
	State  State
	Config Config // zero before Create
	// Guest is what the agent told when it was configured.
	Guest agentv1.Configured
	// VM is the machine's process, zero when there is none.
	VM procid.ID
	// MemoryMiB is what the machine has been grown to.
	MemoryMiB int
	Phases    []Phase
	// ExitReason says why the machine ended, empty while it lives.
	ExitReason string
	CreatedAt  time.Time
	StartedAt  time.Time
	StoppedAt  time.Time
	// Processes are all that were created and not deleted, containers and
	// exec'd ones, by time of creation.
	Processes []ProcessStatus
}

// ProcessStatus is one process at one moment.
type ProcessStatus struct {
	Process
	State     State
	PID       int
	Terminal  bool
	Exit      *Exit // set when State is Stopped
	CreatedAt time.Time
	StartedAt time.Time // zero if it never was
}
