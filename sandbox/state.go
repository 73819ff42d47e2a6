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

// State is where a sandbox, a container or a process is in its life.
type State string

// The states: Ready → Running ⇄ Paused, any of them → Stopped. A stopped sandbox can
// be started again, a stopped container cannot.
const (
	Ready   State = "ready"
	Running State = "running"
	Paused  State = "paused"
	Stopped State = "stopped"
)

// Valid reports whether s is one of the four states: a stored state is checked
// before it is believed.
func (s State) Valid() bool {
	return s == Ready || s == Running || s == Paused || s == Stopped
}

// Errors of this package, matched with errors.Is.
var (
	// ErrState is matched by every *StateError.
	ErrState = errors.New("unexpected state")
	// ErrNotFound is returned for a container or process that is not there.
	ErrNotFound = errors.New("not found")
	// ErrExists is returned for an id that is taken.
	ErrExists = errors.New("already exists")
	// ErrNoSlot is returned when every disk slot of the machine is in use.
	ErrNoSlot = disks.ErrNoSlot
	// ErrTooMany is returned when a sandbox has as many processes as it may.
	ErrTooMany = errors.New("too many processes")
	// ErrVMGone is returned by calls that the machine's end interrupted.
	ErrVMGone = errors.New("the VM is gone")
	// ErrVMStopped is returned by calls to a machine whose process does
	// not run and has not ended.
	ErrVMStopped = errors.New("the VM is not running")
	// ErrSlowClient ends an attached stream whose reader took nothing for a
	// while: a container is not held up by who looks at it.
	ErrSlowClient = output.ErrSlowClient
	// ErrInvalid is returned for a request that no state could make valid.
	ErrInvalid = errors.New("invalid request")
	// ErrTimeout is matched when the start outlasted Options.BootTimeout.
	ErrTimeout = errors.New("deadline exceeded")
	// ErrOwned is returned by Restore while another shim has the sandbox.
	ErrOwned = errors.New("another process has the sandbox")
	// ErrStdinTaken is returned to a second client that would feed a process.
	ErrStdinTaken = errors.New("stdin is attached already")
)

// StateError is a transition that was asked for in another state than the one
// it expects.
type StateError struct {
	Subject string  // "sandbox ID", "container ID" or "process ID/EXEC"
	Action  string  // what was asked for
	State   State   // what it is in
	Want    []State // what the action expects, one or more
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
	StartedAt time.Time     // zero if it never was
	User      *agentv1.User // of a container; nil while it is not known
}
