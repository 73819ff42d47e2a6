package warm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/oomscore"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Parent is a clone that others are forked from. It is the caller's child, and its
// children are. Its methods may be called at once.
type Parent struct {
	vm      hypervisor.VM
	control *Control
}

// Start makes a parent: a clone of m with the library preloaded, in which the caller
// runs what its children shall have run already. Its children's names, o.Name of
// theirs, are as long as its own. Nothing confines it but what o.Start does.
func Start(
	ctx context.Context,
	d qemu.Driver,
	library string,
	m hypervisor.VMConfig,
	f hypervisor.Files,
	o hypervisor.Options,
) (*Parent, error) {
	if m.Accel != hypervisor.TCG {
		return nil, fmt.Errorf("start a parent: %w: only emulated VMs can be forked, not VMs with %s", hypervisor.ErrInvalid, m.Accel)
	}
	if _, err := os.Stat(library); err != nil {
		return nil, fmt.Errorf("start a parent: %w", err)
	}
	p := &Parent{}
	start := o.Start
	if start == nil {
		start = (*exec.Cmd).Start
	}
	o.Start = func(cmd *exec.Cmd) (err error) {
		if p.control, err = Prepare(cmd, library); err != nil {
			return err
		}
		if err = start(cmd); err == nil {
			_ = oomscore.Unprotect(cmd.Process.Pid) // which its children inherit
		}
		return errors.Join(err, p.control.Started())
	}
	vm, err := d.Clone(ctx, m, f, o)
	if err != nil {
		if p.control != nil {
			p.control.Close()
		}
		return nil, err
	}
	p.vm = vm
	return p, nil
}

// VM is the parent's machine, which the caller neither kills nor closes.
func (p *Parent) VM() hypervisor.VM { return p.vm }

// Park stops the parent, whose guest nobody is connected to any more. From then on it
// can be forked, and VM is of no other use.
func (p *Parent) Park(ctx context.Context) error { return qemu.Park(ctx, p.vm) }

// Child is what a fork is to be, beside what every child is.
type Child struct {
	// Name and Dir are as in hypervisor.Options. Dir is the child's owner's.
	Name, Dir string
	// Files take the place of the parent's own of the same numbers. A parent's file that can
	// be written and has no such successor is an error.
	Files []qemu.Inherited
	// Confinement is what it is confined by.
	Confinement
}

// Fork makes a child, whose guest stands still, and returns when it answers: it is taken
// over by qemu.Driver.Adopt, and goes on with VM.Resume. The caller reaps it. When the
// parent cannot be forked any more, the error matches ErrGone.
func (p *Parent) Fork(ctx context.Context, c Child) (r hypervisor.Record, a Answer, err error) {
	files, err := qemu.Inherit(c.Dir)
	if err != nil {
		return r, a, err
	}
	defer func() {
		for _, f := range files {
			f.File.Close()
		}
	}()
	request := Request{Name: qemu.ProcessName(c.Name), Confinement: c.Confinement, Files: slices.Concat(files, c.Files)}
	if err = c.ownSockets(c.Dir); err == nil {
		a, err = p.control.Fork(ctx, request)
	}
	if err != nil {
		qemu.RemoveSockets(c.Dir)
		return r, a, err
	}
	id, err := procid.Of(a.PID)
	if err != nil {
		return r, a, fmt.Errorf("%w: it ended at once: %w", ErrFork, err)
	}
	return hypervisor.Record{Process: id, Dir: c.Dir, Machine: p.vm.Record().Machine}, a, nil
}

// Done is closed when the parent has ended.
func (p *Parent) Done() <-chan struct{} { return p.vm.Done() }

// Close ends the parent, and reaps children that it had no time to tell of: they are in its
// process group. Its other children live on.
func (p *Parent) Close(ctx context.Context) error {
	if err := errors.Join(p.vm.Kill(ctx), p.vm.Close(), p.control.Close()); err != nil {
		return err
	}
	return end(-p.vm.Record().Process.PID)
}
