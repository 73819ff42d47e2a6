// Package hypervisorfake is a hypervisor without VMs, for tests of the packages above it. Its VM is a process that does
// nothing, and its guest is a function of the test. It passes the suite of package hypervisortest.
package hypervisorfake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Driver starts fake VMs. The zero value's guests are silent. Only the Driver that started a VM can adopt it: the guest
// lives there.
type Driver struct {
	// Serve is the guest's side of one connection of the channel. It returns
	// when the connection ends; there is one at a time.
	Serve func(g *Guest, conn net.Conn)

	mu     sync.Mutex
	states map[string]*vmState // by directory
}

var _ hypervisor.Driver = (*Driver)(nil)

// Guest is the state of a fake guest.
type Guest struct {
	m *vmState
	// Value is saved by Save and restored by Clone. Each guest has its own.
	Value []byte
}

// vmState is the part of a VM that lives on after Close.
type vmState struct {
	record hypervisor.Record
	name   string
	cmd    *exec.Cmd
	// pipe keeps the process alive: it closes when the test's process ends.
	pipe io.Closer
	l    net.Listener
	wg   sync.WaitGroup
	done chan struct{}

	mu      sync.Mutex
	disks   map[int]*os.File
	sizes   map[int]int64 // of slots that got a size after the start
	memory  int
	exit    error
	console *os.File
	guest   *Guest
}

// Boot implements hypervisor.Driver.
func (d *Driver) Boot(ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	return d.start(ctx, m, f, o, nil)
}

// magic starts a saved state.
const magic = "fake VM\n"

// Clone implements hypervisor.Driver.
func (d *Driver) Clone(ctx context.Context, m hypervisor.VMConfig, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	if f.Memory == nil || f.State == nil {
		return nil, fmt.Errorf("clone a VM: %w: no memory or no state given", hypervisor.ErrInvalid)
	}
	state, err := io.ReadAll(io.NewSectionReader(f.State, 0, 1<<20))
	if err == nil && (len(state) < len(magic) || string(state[:len(magic)]) != magic) {
		err = errors.New("not a saved state")
	}
	if err != nil {
		return nil, &hypervisor.Error{Phase: "restore", Op: "restore the VM", Err: err}
	}
	return d.start(ctx, m, f, o, state[len(magic):])
}

func (d *Driver) start(
	ctx context.Context,
	m hypervisor.VMConfig,
	f hypervisor.Files,
	o hypervisor.Options,
	value []byte,
) (hypervisor.VM, error) {
	if err := errors.Join(m.Validate(), o.Validate(), ctx.Err()); err != nil {
		return nil, fmt.Errorf("start a VM: %w", err)
	}
	// cat ends with its input.
	cmd := exec.Command("cat")
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	run := (*exec.Cmd).Start
	if o.Start != nil {
		run = o.Start
	}
	if err := run(cmd); err != nil {
		return nil, &hypervisor.Error{Phase: "spawn", Op: "start the VM", Err: err}
	}
	state := &vmState{
		cmd: cmd, name: o.Name, pipe: pipe, done: make(chan struct{}), disks: map[int]*os.File{},
		memory: m.Memory, console: f.Console,
	}
	state.record = hypervisor.Record{Dir: o.Dir, VM: m}
	state.record.Process, err = procid.Of(cmd.Process.Pid)
	if err == nil {
		state.l, err = net.Listen("unix", filepath.Join(o.Dir, "ch"))
	}
	if err == nil {
		err = opened(o, state.record.Process)
	}
	if err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return nil, &hypervisor.Error{Phase: "spawn", Op: "start the VM", Err: err}
	}
	d.mu.Lock()
	if d.states == nil {
		d.states = map[string]*vmState{}
	}
	d.states[o.Dir] = state
	d.mu.Unlock()
	g := &Guest{m: state, Value: value}
	state.guest = g
	state.wg.Go(func() { state.accept(d.Serve, g) })
	go state.reap()
	return &vm{vmState: state}, nil
}

// opened calls o.Opened.
func opened(o hypervisor.Options, process procid.ID) error {
	if o.Opened == nil {
		return nil
	}
	return o.Opened(process)
}

// Adopt implements hypervisor.Driver.
func (d *Driver) Adopt(_ context.Context, r hypervisor.Record, f hypervisor.Files, o hypervisor.Options) (hypervisor.VM, error) {
	d.mu.Lock()
	m := d.states[r.Dir]
	d.mu.Unlock()
	if m == nil || m.record.Process != r.Process || m.ended() {
		return nil, &hypervisor.Error{Phase: "connect", Op: "adopt the VM", Err: hypervisor.ErrGone}
	}
	if m.name != o.Name {
		return nil, &hypervisor.Error{Phase: "connect", Op: "adopt the VM", Err: fmt.Errorf("it is not %s", o.Name)}
	}
	if err := opened(o, r.Process); err != nil {
		return nil, &hypervisor.Error{Phase: "connect", Op: "adopt the VM", Err: err}
	}
	m.mu.Lock()
	m.console = f.Console
	m.mu.Unlock()
	return &vm{vmState: m}, nil
}

// End implements hypervisor.Driver.
func (d *Driver) End(_ context.Context, dir string) error {
	d.mu.Lock()
	m := d.states[dir]
	d.mu.Unlock()
	if m != nil {
		m.end(errors.New("ended"))
		<-m.done
	}
	return nil
}

// Identity implements hypervisor.Driver.
func (d *Driver) Identity(context.Context, hypervisor.VMConfig) (string, error) { return "fake", nil }
