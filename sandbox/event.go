package sandbox

import (
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/records"
)

// Process identifies a container's first process (Exec empty) or an exec'd one.
type Process = agentv1.Process

// EventKind is the kind of an event.
type EventKind string

// The kinds of events.
const (
	SandboxCreated   EventKind = "sandbox-created"
	SandboxStarted   EventKind = "sandbox-started"
	SandboxPaused    EventKind = "sandbox-paused"
	SandboxResumed   EventKind = "sandbox-resumed"
	SandboxStopped   EventKind = "sandbox-stopped" // after the exits of its processes; Message is the reason
	ContainerCreated EventKind = "container-created"
	ContainerPaused  EventKind = "container-paused"
	ContainerResumed EventKind = "container-resumed"
	ExecCreated      EventKind = "exec-created"
	ProcessStarted   EventKind = "process-started"
	ProcessExited    EventKind = "process-exited" // Exit is set
	OOM              EventKind = "oom"            // before the exit
	ProcessDeleted   EventKind = "process-deleted"
)

// Event is a change of the sandbox or of one of its processes.
type Event struct {
	Kind    EventKind
	Time    time.Time
	Process Process // zero for an event of the sandbox
	PID     int     // in the guest, where known
	Exit    *Exit
	Message string
}

// Reasons of an exit. They are Kubernetes' names where it has one.
const (
	ReasonCompleted    = "Completed"
	ReasonError        = "Error"
	ReasonOOMKilled    = guest.ReasonOOMKilled
	ReasonVMKilled     = guest.ReasonVMKilled
	ReasonCannotRun    = "ContainerCannotRun"
	ReasonNeverStarted = "NeverStarted" // deleted or killed before its start
	ReasonStopped      = "Stopped"      // of a sandbox: after Stop
	ReasonStartFailed  = "StartFailed"  // of a sandbox
)

// Exit describes how a process ended.
type Exit = records.Exit
