// Package sandbox runs one pod's VM: its life cycle, its state on disk, the containers in it and their standard
// streams. It runs within the pod's shim, which is the only process that uses it for a given pod.
//
// # Protocol
//
// New starts the VM in the background at once. Create gives the VM its pod's identity (state ready). Start waits for
// the VM, opens the channel and configures the guest (running). CreateContainer then creates containers, CreateExec
// creates processes in them, and StartProcess runs both. Stop kills the VM in any state (stopped); after that, Start
// can start a new one. Restore replaces New if the VM is running already because the previous shim died.
//
// # On disk
//
// In Options.StateDir:
//
//	config.json                    Config, written once by Create
//	state.json                     the VM's state, written by this package alone
//	lock                           flock(2), held during each write
//	containers/<id>/config.json    a container's ContainerConfig, without its spec
//	containers/<id>/state.json     its state, and the states of its exec'd processes
//	containers/<id>/log            how much of its output the log holds
//
// A file that cannot be read or has another version is an error that matches atomicfile.ErrCorrupt. It never counts as
// a state.
//
// All methods are safe for concurrent use.
package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/devices"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/queue"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/records"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/work"
)

// Sandbox is one pod's VM with its containers. New or Restore creates it, and Close releases it.
//
// It owns the VM's life. Its processes and its devices have their own mutexes, which are locked after mu.
type Sandbox struct {
	*processes // has the methods for streams, exits and leases
	o          Options
	log        *slog.Logger
	store      *records.Store
	work       *work.Group // ends with Close
	devices    *devices.Devices
	events     *queue.Queue[Event]

	// op is held by the current life cycle operation.
	op chan struct{}

	mu        sync.Mutex
	created   bool
	deleted   bool
	config    Config
	state     records.Sandbox
	stopped   chan struct{}           // closed while the state is Stopped
	booting   *boot                   // the latest start of a VM
	vm        *liveVM                 // nil without a VM
	first     *boot                   // the first start
	interrupt context.CancelCauseFunc // cancels a running Start
}

// New returns a sandbox and starts its VM in the background; Start returns that start's error. Options.StateDir must
// not hold a sandbox.
func New(o Options) (*Sandbox, error) {
	s, err := newSandbox(o)
	if err != nil {
		return nil, err
	}
	if _, err := s.store.ReadSandbox(); !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("create a sandbox in %s: %w", o.StateDir, errors.Join(errdefs.ErrAlreadyExists, err))
	}
	if err := s.save(); err != nil {
		return nil, fmt.Errorf("create a sandbox in %s: %w", o.StateDir, err)
	}
	s.deliverEvents()
	s.mu.Lock()
	s.boot()
	s.mu.Unlock()
	return s, nil
}

func newSandbox(o Options) (*Sandbox, error) {
	if o.StartVM == nil || o.StateDir == "" {
		return nil, fmt.Errorf("create a sandbox: %w: Options.StartVM and StateDir must be set", errdefs.ErrInvalidArgument)
	}
	self, err := procid.Of(os.Getpid())
	if err != nil {
		return nil, fmt.Errorf("create a sandbox: %w", err)
	}
	o = o.withDefaults()
	s := &Sandbox{
		o: o, log: o.Logger, store: &records.Store{Dir: o.StateDir}, work: work.New(), events: queue.New[Event](),
		op:      make(chan struct{}, 1),
		stopped: make(chan struct{}),
		state:   records.Sandbox{Version: records.Version, Owner: self, State: Ready},
	}
	s.devices = devices.New(o.CallTimeout, func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.save()
	})
	s.processes = &processes{
		store: s.store, emit: s.emit, work: s.work, log: s.log, callTimeout: o.CallTimeout,
		patience: exitPatience, oomPause: oomPause, execs: make(chan struct{}, maxExecs), all: map[Process]*process{},
	}
	return s, nil
}

// deliverEvents starts the delivery of events.
func (s *Sandbox) deliverEvents() {
	s.work.Go(func() {
		s.events.Deliver(s.work.Context(), func(e Event) {
			if s.o.Events != nil {
				s.o.Events(e)
			}
		})
	})
}

// emit queues an event. The caller holds the mutex of the changed object, so that events are queued in the order of the
// changes.
func (s *Sandbox) emit(e Event) {
	if e.Time.IsZero() {
		e.Time = now()
	}
	s.events.Put(e)
}

// acquire waits until no other life cycle operation is running. The caller calls release.
func (s *Sandbox) acquire(ctx context.Context, action string) error {
	select {
	case s.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s %s: %w", action, s.subject(), context.Cause(ctx))
	}
}

func (s *Sandbox) release() { <-s.op }

// subject returns the sandbox's name for errors.
func (s *Sandbox) subject() string {
	if s.o.ID == "" {
		return "sandbox in " + s.o.StateDir
	}
	return "sandbox " + s.o.ID
}

// save stores the state. The caller holds mu or has the only reference.
func (s *Sandbox) save() error {
	s.state.Record = s.devices.Record()
	return s.store.Write(s.store.Path("state.json"), s.state)
}

// saveOrLog is save for a change that cannot be undone.
func (s *Sandbox) saveOrLog() {
	if err := s.save(); err != nil {
		s.log.Error("state not stored", "error", err)
	}
}

// Create sets the sandbox's configuration. It succeeds once, in the state Ready.
func (s *Sandbox) Create(ctx context.Context, c Config, f Files) (err error) {
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if len(f.Cards) != len(c.Cards) {
		return fmt.Errorf("create sandbox %q: %w: %d taps for %d interfaces", c.ID, errdefs.ErrInvalidArgument, len(f.Cards), len(c.Cards))
	}
	if c.Version != ConfigVersion || c.ID == "" || s.o.ID != "" && c.ID != s.o.ID {
		return fmt.Errorf("create sandbox %q: %w: version %d", c.ID, errdefs.ErrInvalidArgument, c.Version)
	}
	if err := s.acquire(ctx, "create"); err != nil {
		return err
	}
	defer s.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.created {
		return fmt.Errorf("create %s: %w", s.subject(), errdefs.ErrAlreadyExists)
	}
	if err := expect(s.subject(), "create", s.state.State, Ready); err != nil {
		return err
	}
	if err := s.store.Write(s.store.Path("config.json"), c); err != nil {
		return fmt.Errorf("create sandbox %s: %w", c.ID, err)
	}
	fault.Point("sandbox.created")
	s.config, s.created = c, true
	s.devices.TakeFiles(f.Scratch, f.Cards)
	s.devices.Slots.Init(c.VM)
	s.emit(Event{Kind: SandboxCreated})
	return nil
}

// Delete removes the sandbox's files. The state must be Ready, in which case Delete kills the VM, or Stopped. With
// force, Delete stops the sandbox first.
func (s *Sandbox) Delete(ctx context.Context, force bool) error {
	s.mu.Lock()
	err := expect(s.subject(), "delete", s.state.State, Ready, Stopped)
	s.mu.Unlock()
	if err != nil && !force {
		return err
	}
	// A Ready sandbox has a VM too, which must not outlive its files.
	if err := s.stop(ctx, false); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	if err := s.acquire(ctx, "delete"); err != nil {
		return err
	}
	defer s.release()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := expect(s.subject(), "delete", s.state.State, Stopped); err != nil {
		return err // started again meanwhile
	}
	s.clear()
	s.deleted = true
	s.logIf("close the scratch disk", s.devices.Close())
	if err := s.store.Remove(); err != nil {
		return fmt.Errorf("delete %s: %w", s.subject(), err)
	}
	fault.Point("sandbox.removed")
	return nil
}

// Close releases a sandbox without killing its VM, and returns when all its goroutines have ended. Close after Delete
// is a no-op.
func (s *Sandbox) Close() error {
	s.mu.Lock()
	s.work.Cancel()
	if s.interrupt != nil {
		s.interrupt(errClosed)
	}
	s.mu.Unlock()
	s.work.Wait()
	s.mu.Lock()
	m := s.vm
	s.vm = nil
	s.mu.Unlock()
	var errs []error
	if m != nil {
		errs = append(errs, m.Detach())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closeLogs()
	return errors.Join(append(errs, s.devices.Close())...)
}

var errClosed = errors.New("the shim has closed the sandbox")

// Status returns the current status.
func (s *Sandbox) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Status{
		State: s.state.State, Config: s.config, Guest: s.state.Guest,
		MemoryMiB: s.devices.Record().MemoryMiB, Phases: append([]Phase(nil), s.state.Phases...),
		ExitReason: s.state.Why(), CreatedAt: s.config.Created,
		StartedAt: s.state.StartedAt, StoppedAt: s.state.StoppedAt, Processes: s.statuses(),
	}
	if s.state.VM != nil {
		st.VM = s.state.VM.Process
	}
	return st
}

// WaitStopped waits for the state Stopped and returns the reason: ReasonStopped, ReasonStartFailed, ReasonVMKilled or
// ReasonOOMKilled.
func (s *Sandbox) WaitStopped(ctx context.Context) (string, error) {
	s.mu.Lock()
	stopped := s.stopped
	s.mu.Unlock()
	select {
	case <-stopped:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.state.ExitReason, nil
	case <-ctx.Done():
		return "", fmt.Errorf("wait for %s: %w", s.subject(), context.Cause(ctx))
	}
}

func now() time.Time { return time.Now().UTC() }
