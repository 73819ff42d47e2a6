package parents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/rehearsal"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/hypervisor/warm"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/tap"
	"github.com/bulkhead-project/bulkhead/internal/undo"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/sandbox/ready"
	"github.com/bulkhead-project/bulkhead/shim/confine"
	"github.com/bulkhead-project/bulkhead/shim/layout"
	"github.com/bulkhead-project/bulkhead/shim/policy"
)

// makeTimeout bounds the start of a parent. With an existing template it takes about two seconds of CPU time.
const makeTimeout = 3 * time.Minute

// newParent starts a parent and tests it with a fork.
func (p *Parents) newParent(ctx context.Context, k *kind) (_ *parent, err error) {
	ctx, cancel := context.WithTimeout(ctx, makeTimeout)
	defer cancel()
	began := time.Now()
	t, err := p.o.Template(ctx, k.VM)
	if err != nil {
		return nil, err
	}
	defer t.Release()
	id := store.NewID()
	made := &parent{kind: k, dir: filepath.Join(p.o.Dir, id[:12]), memory: t.Memory}
	var rollback undo.Stack
	defer rollback.OnError(ctx, &err)
	if made.walls, err = confine.MakeWalls(policy.VM(k.VM, p.o.Driver.Program)); err != nil {
		return nil, fmt.Errorf("make the walls of forks: %w", err)
	}
	rollback.Push("walls", func(context.Context) error { return made.walls.Close() })
	rollback.Push("directory", func(context.Context) error { return os.RemoveAll(made.dir) })
	for _, dir := range []string{p.o.Dir, made.dir} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return nil, err
		}
	}
	vm, err := p.rehearse(ctx, made, id, t, &rollback)
	if err != nil {
		return nil, fmt.Errorf("rehearse: %w", err)
	}
	made.process = vm
	fault.Point("warm.rehearsed")
	if err := vm.Park(ctx); err != nil {
		return nil, err
	}
	fault.Point("warm.parked")
	if made.holes, err = vm.VM().Process().Files(made.disk); err != nil {
		return nil, err
	}
	if k.VM.Network.Tap() {
		if made.cards, err = taps(vm.VM().Process()); err != nil {
			return nil, err
		}
	}
	if err := p.prove(ctx, made); err != nil {
		return nil, fmt.Errorf("test it with a fork: %w", err)
	}
	fault.Point("warm.proven")
	p.o.Logger.Info("a parent is ready", "tenant", k.Tenant, "vcpus", k.VM.VCPUs, "memory", k.VM.Memory,
		"network", k.VM.Network, "took", time.Since(began))
	return made, nil
}

// rehearse starts the parent and runs a container in it. Nothing of the container remains.
func (p *Parents) rehearse(
	ctx context.Context,
	made *parent,
	id string,
	t *vms.Template,
	rollback *undo.Stack,
) (vm *warm.Parent, err error) {
	script, err := rehearsal.Script()
	if err != nil {
		return nil, err
	}
	if script.Network, err = p.o.Network(ctx, made.kind.VM); err != nil {
		return nil, err
	}
	if p.o.Share != "" {
		if script.Shared, err = p.shared(made.dir); err != nil {
			return nil, err
		}
		defer script.Shared.Ring.Close()
	}
	box, err := sandbox.New(sandbox.Options{
		StateDir: made.dir, Logger: p.o.Logger, Patience: t.Patience,
		StartVM: func(ctx context.Context) (hypervisor.VM, error) {
			console, err := os.OpenFile(filepath.Join(made.dir, layout.Console), os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				return nil, err
			}
			vm, err = warm.Start(ctx, p.o.Driver, p.o.Library, made.kind.VM,
				hypervisor.Files{Memory: t.Memory, State: t.State, Console: console},
				hypervisor.Options{Dir: made.dir, Name: layout.VMName(id)})
			if err != nil {
				console.Close()
				return nil, err
			}
			fault.Point("warm.started")
			return kept{vm.VM()}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	rollback.Push("machine", func(ctx context.Context) error {
		if vm == nil {
			return nil
		}
		return vm.Close(ctx)
	})
	if made.disk, err = p.scratch(ctx, made.dir); err == nil {
		rollback.Push("disk", func(context.Context) error { return made.disk.Close() })
		var image *os.File
		if image, err = rehearsal.Image(); err == nil {
			err = box.Rehearse(ctx, script, made.disk, image)
		}
	}
	return vm, errors.Join(err, box.Close())
}

// scratch creates and opens the disk that the parent's guest mounts.
func (p *Parents) scratch(ctx context.Context, dir string) (*os.File, error) {
	path := filepath.Join(dir, "scratch.img")
	if err := p.o.Scratch(ctx, path); err != nil {
		return nil, err
	}
	return os.OpenFile(path, os.O_RDWR, 0)
}

// errDisk is matched by a failed fork if the parent is not at fault.
var errDisk = errors.New("its disk")

// taps returns a process's descriptors of its network card.
func taps(id procid.ID) ([]int, error) {
	node, err := os.Open(tap.Node)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	return id.Files(node)
}

// fork forks a child with its own disk and card in place of the parent's.
func (from *parent) fork(
	ctx context.Context, c warm.Child, disk func(*os.File) (*os.File, error), card *os.File,
) (hypervisor.Record, error) {
	own, err := disk(from.disk)
	if err != nil {
		return hypervisor.Record{}, fmt.Errorf("%w: %w: %w", warm.ErrFork, errDisk, err)
	}
	defer own.Close()
	for _, n := range from.holes {
		c.Files = append(c.Files, qemu.Inherited{Number: n, File: own})
	}
	for _, n := range from.cards {
		c.Files = append(c.Files, qemu.Inherited{Number: n, File: card})
	}
	r, _, err := from.Fork(ctx, c)
	return r, err
}

// kept is a VM that stays open when its sandbox closes it.
type kept struct{ hypervisor.VM }

// Close does nothing.
func (kept) Close() error { return nil }

// prove forks the parent and waits for the fork's agent. It detects incompatibilities of this host or QEMU before
// there is a pod.
func (p *Parents) prove(ctx context.Context, made *parent) error {
	dir := filepath.Join(made.dir, "proof")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, forkTimeout)
	defer cancel()
	name := layout.VMName(store.NewID())
	child := warm.Child{Name: name, Dir: dir, Confinement: warm.Confinement{
		FileSize: hypervisor.SlotSize, Landlock: made.walls.Ruleset, Filter: made.walls.Filter,
	}}
	var card *os.File
	if len(made.cards) > 0 {
		var err error
		if card, err = tap.Idle(); err != nil {
			return err
		}
		defer card.Close()
	}
	r, err := made.fork(ctx, child, func(from *os.File) (*os.File, error) {
		path := filepath.Join(dir, "scratch.img")
		if err := scratch.Copy(path, from); err != nil {
			return nil, err
		}
		return os.OpenFile(path, os.O_RDWR, 0)
	}, card)
	if err != nil {
		return err
	}
	status := make(chan error, 1)
	go func() { _, err := procid.Reap(r.Process.PID); status <- err }()
	v, err := p.o.Driver.Adopt(ctx, r, hypervisor.Files{}, hypervisor.Options{Name: name, Dir: dir})
	if err == nil {
		if err = v.Resume(ctx); err == nil {
			if err = ready.Answering(ctx, v); err != nil {
				err = v.Explain("reach the agent", err)
			}
		}
		err = errors.Join(err, v.Kill(context.WithoutCancel(ctx)), v.Close())
	} else {
		err = errors.Join(err, r.Process.Signal(9))
	}
	return errors.Join(err, <-status, os.RemoveAll(dir))
}
