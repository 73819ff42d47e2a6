package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/disks"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/output"
)

// State is the state of a sandbox, a container or a process.
type State string

// The states: Ready → Running ⇄ Paused, any of them → Stopped. A stopped sandbox can start again, a stopped container
// cannot.
const (
	Ready   State = "ready"
	Running State = "running"
	Paused  State = "paused"
	Stopped State = "stopped"
)

// Valid reports whether s is one of the four states. Stored states are checked with it.
func (s State) Valid() bool {
	return s == Ready || s == Running || s == Paused || s == Stopped
}

// Errors of this package, matched with errors.Is.
var (
	// ErrState is matched by every *StateError.
	ErrState = errors.New("unexpected state")
	// ErrNotFound is returned for a container or process that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned for an id that is in use.
	ErrExists = errors.New("already exists")
	// ErrNoSlot is returned when every disk slot of the VM is in use.
	ErrNoSlot = disks.ErrNoSlot
	// ErrTooMany is returned when a sandbox has the maximum number of processes.
	ErrTooMany = errors.New("too many processes")
	// ErrVMGone is returned by calls that the VM's end interrupted.
	ErrVMGone = errors.New("the VM is gone")
	// ErrVMStopped is returned by calls to a VM if its process is stopped (SIGSTOP).
	ErrVMStopped = errors.New("the VM is not running")
	// ErrSlowClient ends an attached stream if its reader falls behind. A slow client must not block the container.
	ErrSlowClient = output.ErrSlowClient
	// ErrInvalid is returned for a request that is wrong in every state.
	ErrInvalid = errors.New("invalid request")
	// ErrTimeout is matched when the start exceeded Options.BootTimeout.
	ErrTimeout = errors.New("deadline exceeded")
	// ErrOwned is returned by Restore if another shim owns the sandbox.
	ErrOwned = errors.New("another process has the sandbox")
	// ErrStdinTaken is returned to a second client with a stdin.
	ErrStdinTaken = errors.New("stdin is attached already")
	// ErrAttached is returned by AttachFiles while other files are attached.
	ErrAttached = errors.New("files of the host are attached already")
)

// StateError is returned for an action that the current state does not allow.
type StateError struct {
	Subject string  // "sandbox ID", "container ID" or "process ID/EXEC"
	Action  string  // the refused action
	State   State   // the current state
	Want    []State // the states that the action expects, one or more
}

// Error names the subject, its state and the expected ones.
func (e *StateError) Error() string {
	want := make([]string, len(e.Want))
	for i, s := range e.Want {
		want[i] = string(s)
	}
	return fmt.Sprintf("%s %s: it is %s, not %s", e.Action, e.Subject, e.State, strings.Join(want, " or "))
}

// Is matches ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

// expect returns a *StateError unless have is among want.
func expect(subject, action string, have State, want ...State) error {
	if slices.Contains(want, have) {
		return nil
	}
	return &StateError{Subject: subject, Action: action, State: have, Want: want}
}

// Phase is one step of the start, with its duration.
type Phase struct {
	Name         string `json:"name"`
	Microseconds int64  `json:"microseconds"`
}

// Status describes the sandbox at one moment. It is the caller's own copy.
type Status struct {
	State  State
	Config Config // zero before Create
	// Guest is the agent's answer to its configuration.
	Guest agentv1.Configured
	// VM is the VM's process, zero without a VM.
	VM procid.ID
	// MemoryMiB is the VM's current memory.
	MemoryMiB int
	Phases    []Phase
	// ExitReason says why the VM ended; empty while it runs.
	ExitReason string
	CreatedAt  time.Time
	StartedAt  time.Time
	StoppedAt  time.Time
	// Processes are all containers and exec'd processes that were created and not deleted, by time of creation.
	Processes []ProcessStatus
}

// ProcessStatus describes one process at one moment.
type ProcessStatus struct {
	Process
	State     State
	PID       int
	Terminal  bool
	Exit      *Exit // set when State is Stopped
	CreatedAt time.Time
	StartedAt time.Time     // zero if it never started
	User      *agentv1.User // of a container; nil until known
}
