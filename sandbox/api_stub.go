package sandbox

import (
	"context"
	"errors"
	"net"
	"os"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"golang.org/x/sys/unix"
)

var errStub = errors.ErrUnsupported

// Sandbox is one pod's machine with its containers. It is made by New or
// Restore and let go of with Close.
type Sandbox struct{}

// New returns the sandbox of a machine that it starts at once, in the
// background; the start's error is Start's. Options.StateDir must hold no
// sandbox yet.
func New(o Options) (*Sandbox, error) { return nil, errStub }

// Restore returns the sandbox that StateDir holds, with the machine, the
// containers and the logs where the shim before left them. A machine that has
// ended meanwhile gives a stopped sandbox. On an error nothing on disk is
// changed and no process ended, and Restore may be tried again.
func Restore(ctx context.Context, o Options, f RestoreFiles) (*Sandbox, error) { return nil, errStub }

// Create gives the sandbox its configuration; its state is then Ready. A
// sandbox is created once.
func (s *Sandbox) Create(ctx context.Context, c Config, f Files) error { return errStub }

// Start brings a Ready or Stopped sandbox to Running: the machine is up, its
// agent configured, its memory grown and its scratch disk mounted. On an error
// the machine is gone and the state Stopped. A stopped sandbox gets a new machine.
func (s *Sandbox) Start(ctx context.Context) error { return errStub }

// Stop ends the machine in whatever state it is; processes that still run end
// with it, as ReasonVMKilled with code 137. The agent is first asked to flush
// its disks, for a bounded time. It is idempotent, and interrupts a Start.
func (s *Sandbox) Stop(ctx context.Context) error { return errStub }

// Pause stops the machine's clock and processors: Running becomes Paused.
func (s *Sandbox) Pause(ctx context.Context) error { return errStub }

// Resume lets a Paused machine go on and sets its clock.
func (s *Sandbox) Resume(ctx context.Context) error { return errStub }

// Delete removes what the sandbox has on disk. It expects Ready (whose
// machine it ends) or Stopped; forced, it stops the sandbox first.
func (s *Sandbox) Delete(ctx context.Context, force bool) error { return errStub }

// Close lets go of a sandbox without ending its machine, and returns when no
// goroutine of it runs any more. Close after Delete is a no-op.
func (s *Sandbox) Close() error { return errStub }

// Status is the sandbox as it is now.
func (s *Sandbox) Status() Status { return Status{} }

// ProcessStatus is one process as it is now, or ErrNotFound.
func (s *Sandbox) ProcessStatus(p Process) (ProcessStatus, error) { return ProcessStatus{}, errStub }

// WaitStopped returns when the sandbox's state is Stopped, with why the
// machine ended.
func (s *Sandbox) WaitStopped(ctx context.Context) (string, error) { return "", errStub }

// CreateContainer makes a container (state Ready) in a running sandbox. It
// takes over the configuration's descriptors, also when it fails.
func (s *Sandbox) CreateContainer(ctx context.Context, c ContainerConfig) error { return errStub }

// CreateExec registers a process for a running container; nothing runs
// before StartProcess, so that a client can attach first and miss nothing.
func (s *Sandbox) CreateExec(ctx context.Context, e ExecConfig) error { return errStub }

// StartProcess runs a Ready process and returns its number in the guest. A
// command that is missing or cannot be run ends the process with code 127 or
// 126 and is an error that matches agentv1.ErrNoCommand or ErrNotExec.
func (s *Sandbox) StartProcess(ctx context.Context, p Process) (int, error) { return 0, errStub }

// SignalProcess sends sig to a process, or with all to every one of its
// container. A process that has ended is ErrNotFound.
func (s *Sandbox) SignalProcess(ctx context.Context, p Process, sig unix.Signal, all bool) error {
	return errStub
}

// WaitProcess returns when the process has ended and its output has been
// written to its log.
func (s *Sandbox) WaitProcess(ctx context.Context, p Process) (Exit, error) { return Exit{}, errStub }

// DeleteProcess forgets a Ready or Stopped process and what it has on disk; a
// container goes with its exec'd processes.
func (s *Sandbox) DeleteProcess(ctx context.Context, p Process) (Exit, error) {
	return Exit{}, errStub
}

// ResizeProcess sets the size of a process's terminal.
func (s *Sandbox) ResizeProcess(ctx context.Context, p Process, width, height uint16) error {
	return errStub
}

// CloseInput closes a process's stdin once everything attached has been fed.
func (s *Sandbox) CloseInput(ctx context.Context, p Process) error { return errStub }

// PauseContainer freezes a running container; ResumeContainer lets it go on.
func (s *Sandbox) PauseContainer(ctx context.Context, id string) error { return errStub }

// ResumeContainer is the inverse of PauseContainer.
func (s *Sandbox) ResumeContainer(ctx context.Context, id string) error { return errStub }

// UpdateContainer changes a container's cgroup; resources is an OCI
// LinuxResources in JSON. memoryMiB, if it is more than the machine has, is what the machine is grown to
// first.
func (s *Sandbox) UpdateContainer(ctx context.Context, id string, resources []byte, memoryMiB int) error {
	return errStub
}

// ContainerStats are a container's live figures.
func (s *Sandbox) ContainerStats(ctx context.Context, id string) (agentv1.Stats, error) {
	return agentv1.Stats{}, errStub
}

// Pids are the processes of a container as the guest numbers them.
func (s *Sandbox) Pids(ctx context.Context, id string) ([]int, error) { return nil, errStub }

// Memory is the guest's own view of its memory.
func (s *Sandbox) Memory(ctx context.Context) (agentv1.Memory, error) {
	return agentv1.Memory{}, errStub
}

// ReadFile returns at most limit bytes from the end of a container's file.
func (s *Sandbox) ReadFile(ctx context.Context, id, path string, limit int) ([]byte, error) {
	return nil, errStub
}

// Attach copies a process's streams to and from a client, from now on, and
// returns when the process's output has ended (nil), when the client failed or
// fell behind (ErrSlowClient), or with ctx. A Ready process may be attached
// to: nothing of its output is missed. Writes to the client come from one
// goroutine a stream.
func (s *Sandbox) Attach(ctx context.Context, p Process, c Streams) error { return errStub }

// ReopenLog lets a container's log go on in f, which the sandbox closes in
// its time.
func (s *Sandbox) ReopenLog(ctx context.Context, id string, f *os.File) error { return errStub }

// Forward connects to a port of the pod. The connection supports CloseWrite
// (half close).
func (s *Sandbox) Forward(ctx context.Context, port uint16) (net.Conn, error) { return nil, errStub }
