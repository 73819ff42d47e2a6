package sandbox

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Starter makes the pod's machine: a clone of a template or a cold boot. One
// that fails leaves no process.
type Starter func(ctx context.Context) (hypervisor.VM, error)

// Adopter takes over the machine that runs already, or returns an error that
// matches hypervisor.ErrGone if it runs no more.
type Adopter func(ctx context.Context, r hypervisor.Record) (hypervisor.VM, error)

// Options are what a sandbox needs from its shim.
type Options struct {
	// ID is the pod's sandbox id; empty for a member of the pool, which gets
	// it with Create.
	ID string
	// StateDir is the sandbox's own directory, which exists.
	StateDir string
	// Machine starts the machine; it is called once for every start.
	Machine Starter
	// Adopt is what Restore takes the machine over with.
	Adopt Adopter
	// Events gets every event in the order it happened, from one goroutine at
	// a time; it must not block and must not call the sandbox. Nil for none.
	Events func(Event)
	// Logger is for what no caller asked; nil discards.
	Logger *slog.Logger
	// BootTimeout bounds the wait for the machine and its agent's first
	// answer; 0 is a minute, enough for a cold boot under emulation.
	BootTimeout time.Duration
	// CallTimeout bounds each call to the agent that does not wait for a
	// process; 0 is 30 seconds.
	CallTimeout time.Duration
}

// Files are the descriptors that Create takes over; the sandbox closes them.
type Files struct {
	// Scratch is the disk of the pod's writable layers and volumes, ext4, or
	// nil for memory.
	Scratch *os.File
}

// RestoreFiles are the descriptors that a new shim is given again. The
// sandbox closes them, used or not.
type RestoreFiles struct {
	// Scratch is as in Files. It is needed for a later start only.
	Scratch *os.File
	// Logs are the containers' log files by container id. The output of a
	// container whose log is missing is kept in the guest until ReopenLog.
	Logs map[string]*os.File
}

// flushTimeout bounds the guest's flush before its machine is ended, and
// killTimeout the end itself.
const (
	flushTimeout = 5 * time.Second
	killTimeout  = 30 * time.Second
	lockTimeout  = 10 * time.Second
)

func (o Options) withDefaults() Options {
	if o.BootTimeout == 0 {
		o.BootTimeout = time.Minute
	}
	if o.CallTimeout == 0 {
		o.CallTimeout = 30 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o
}
