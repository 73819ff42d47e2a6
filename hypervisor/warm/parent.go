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

// Parent is a clone that others are forked from. It is the caller's child process, and so are its children. Its methods
// are safe for concurrent use.
type Parent struct {
	vm      hypervisor.VM
	control *Control
}

// Start starts a parent: a clone of m with the library preloaded. The caller then runs the code in it that its children
// need to have run. The names of children must be as long as o.Name. Only o.Start confines the parent.
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
			_ = oomscore.Unprotect(cmd.Process.Pid) // the children inherit it
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

// VM returns the parent's VM. The caller neither kills nor closes it.
func (p *Parent) VM() hypervisor.VM { return p.vm }

// Park stops the parent. All connections to its guest must be closed. From then on it can be forked, and VM has no
// other use.
func (p *Parent) Park(ctx context.Context) error { return qemu.Park(ctx, p.vm) }

// Child describes a fork.
type Child struct {
	// Name and Dir are as in hypervisor.Options. Dir belongs to the child's owner.
	Name, Dir string
	// Files replace the parent's files of the same numbers. It is an error if a parent's writable file is not replaced.
	Files []qemu.Inherited
	// Confinement confines the child.
	Confinement
}

// Fork creates a child with a stopped guest, and returns when the child answers. Take it over with qemu.Driver.Adopt,
// and start its guest with VM.Resume. The caller reaps it. If the parent cannot be forked any more, the error matches
// errGone.
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
	return hypervisor.Record{Process: id, Dir: c.Dir, VM: p.vm.Record().VM}, a, nil
}

// Done is closed when the parent has ended.
func (p *Parent) Done() <-chan struct{} { return p.vm.Done() }

// Close ends the parent, and reaps children in its process group: it had no time to report these. Its other children
// live on.
func (p *Parent) Close(ctx context.Context) error {
	if err := errors.Join(p.vm.Kill(ctx), p.vm.Close(), p.control.Close()); err != nil {
		return err
	}
	return killAndReap(-p.vm.Record().Process.PID)
}
