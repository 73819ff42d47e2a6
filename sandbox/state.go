package sandbox

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/records"
)

// State is the state of a sandbox, a container or a process.
type State = records.State

// The states: Ready → Running ⇄ Paused, any of them → Stopped. A stopped sandbox can start again, a stopped container
// cannot.
const (
	Ready   = records.Ready
	Running = records.Running
	Paused  = records.Paused
	Stopped = records.Stopped
)

// Errors of this package, matched with errors.Is.
var (
	ErrVMGone    = guest.ErrVMGone                                                                // the VM's end interrupted the call
	ErrVMStopped = guest.ErrVMStopped                                                             // its process is stopped (SIGSTOP)
	ErrAttached  = errdefs.ErrAlreadyExists.WithMessage("files of the host are attached already") // by AttachFiles
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

// Unwrap returns the class.
func (e *StateError) Unwrap() error { return errdefs.ErrFailedPrecondition }

// expect returns a *StateError unless have is among want.
func expect(subject, action string, have State, want ...State) error {
	if slices.Contains(want, have) {
		return nil
	}
	return &StateError{Subject: subject, Action: action, State: have, Want: want}
}

// Phase is one step of the start, with its duration.
type Phase = records.Phase

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
