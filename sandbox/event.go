package sandbox

import (
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Process names a container's first process (Exec empty) or one that was
// started in it later.
type Process = agentv1.Process

// EventKind says what happened.
type EventKind string

// The kinds of events.
const (
	SandboxCreated   EventKind = "sandbox-created"
	SandboxStarted   EventKind = "sandbox-started"
	SandboxPaused    EventKind = "sandbox-paused"
	SandboxResumed   EventKind = "sandbox-resumed"
	SandboxStopped   EventKind = "sandbox-stopped" // comes after the exits of its processes; Message is why
	ContainerCreated EventKind = "container-created"
	ContainerPaused  EventKind = "container-paused"
	ContainerResumed EventKind = "container-resumed"
	ExecCreated      EventKind = "exec-created"
	ProcessStarted   EventKind = "process-started"
	ProcessExited    EventKind = "process-exited" // Exit is set
	OOM              EventKind = "oom"            // comes before the exit
	ProcessDeleted   EventKind = "process-deleted"
)

// Event is one thing that happened to the sandbox or a process of it.
type Event struct {
	Kind    EventKind
	Time    time.Time
	Process Process // zero for the sandbox's own
	PID     int     // the guest's number for the process, where known
	Exit    *Exit
	Message string
}

// emit queues an event; the caller holds mu, so that the events' order is that of what
// happened.
func (s *Sandbox) emit(e Event) {
	if e.Time.IsZero() {
		e.Time = now()
	}
	s.events.Put(e)
}

// Reasons of an exit, as Kubernetes names them where it has a name.
const (
	ReasonCompleted    = "Completed"
	ReasonError        = "Error"
	ReasonOOMKilled    = "OOMKilled"
	ReasonVMKilled     = "VMKilled"
	ReasonCannotRun    = "ContainerCannotRun"
	ReasonNeverStarted = "NeverStarted" // deleted or killed before its start
	ReasonStopped      = "Stopped"      // of a sandbox: Stop was asked for
	ReasonStartFailed  = "StartFailed"  // of a sandbox
)

// Exit is how a process ended.
type Exit struct {
	// Code is 0 to 255; 128+n for signal n, 126 and 127 for a command that
	// could not be run or found, 137 for one that its machine took along.
	Code    int       `json:"code"`
	Signal  int       `json:"signal,omitempty"`
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitempty"`
	At      time.Time `json:"at"`
}
