package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/parents"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/network"
)

// completeVMs opens the templates and the parents.
func (o *Options) completeVMs() error {
	templates, err := vms.Open(o.Roots, o.Guest, o.Logger, o.Observer)
	if err != nil {
		return err
	}
	o.VMs = templates
	if o.NoForks {
		return nil
	}
	if o.Warm == "" {
		if o.Warm, err = dirs.Sibling("bulkhead-warm.so"); err != nil {
			o.Logger.Info("VMs are not forked", "why", err)
			return nil
		}
	}
	o.Parents = parents.New(parents.Options{
		Dir: o.warmDir(), Library: o.Warm, Share: o.Share, Driver: templates.QEMU(),
		Template: func(ctx context.Context, m hypervisor.VMConfig) (*vms.Template, error) {
			return templates.Template(ctx, m, nil)
		},
		Network: o.rehearsalNetwork,
		Scratch: func(ctx context.Context, path string) error {
			return scratch.Maker{Templates: o.Roots.Templates()}.Create(ctx, path, disks.Default)
		},
		MostForks: o.ForksPerParent, Observer: o.Observer, Logger: o.Logger,
	})
	return nil
}

// warmDir is the directory with the sockets of parents.
func (o *Options) warmDir() string { return filepath.Join(o.Roots.Instance(o.Instance), "warm") }

// rehearsalNetwork returns the network configuration that a parent sets up before it has a pod.
func (o *Options) rehearsalNetwork(_ context.Context, m hypervisor.VMConfig) (*agentv1.Network, error) {
	p, err := o.networks.Of(networks.KindOf(m))
	if err != nil {
		return nil, err
	}
	return guestNetwork(store.NewID(), network.Attachment{Guest: p.Example()}), nil
}

// whyNoFork returns why the pod must not be forked, or "". A fork has an empty disk of the default size.
func (b *building) whyNoFork() (measure.NotForked, string) {
	switch {
	case b.e.kinds.Parents == nil:
		return measure.Off, "this engine does not fork VMs"
	case b.alone:
		return measure.Retry, "an earlier VM of this start failed"
	case b.plan.Cold || b.plan.NoFork:
		return measure.Asked, "the pod asks for no fork"
	case b.from != nil:
		return measure.Disk, "it has the disk of an earlier pod"
	case b.plan.scratchSize() != disks.Default:
		return measure.Disk, "its disk is not of the default size"
	}
	return "", ""
}

// observe reports the finished start to the Observer.
func (b *building) observe(err error) {
	s := measure.Start{VM: measure.Clone, NotForked: b.notForked, Took: time.Since(b.begun), Failed: err != nil}
	switch {
	case b.plan.Cold:
		s.VM, s.NotForked = measure.Boot, ""
	case b.record.Forked:
		s.VM = measure.Fork
	}
	for _, p := range b.record.Phases {
		if p.Name != totalPhase {
			s.Phases = append(s.Phases, measure.Phase(p))
		}
	}
	b.e.o.Observer.Started(s)
}

// copyOf returns the function that forks the pod's VM and its disk, confined like a VM that the shim starts.
func (b *building) copyOf(memory *os.File) func(context.Context, string) (hypervisor.Record, error) {
	return func(ctx context.Context, dir string) (hypervisor.Record, error) {
		made, err := b.fork(ctx, memory, dir)
		if b.record.Forked = err == nil; err != nil {
			b.record.ForkNote, b.notForked = err.Error(), measure.Broken
			if errors.Is(err, parents.ErrNone) {
				b.notForked = measure.NoParent
			}
			err = errors.Join(err, b.e.disks.Drop(b.record.ID))
		}
		return made, err
	}
}

func (b *building) fork(ctx context.Context, memory *os.File, dir string) (made hypervisor.Record, err error) {
	e, r := b.e, &b.record
	c := parents.Child{ID: r.ID, Dir: dir, Owner: r.Owner, Memory: memory, Tap: b.attached.Tap}
	c.Disk = func(from *os.File) (*os.File, error) { return e.disks.Copy(r.ID, from) }
	defer func() {
		for _, f := range c.Groups {
			f.Close()
		}
		err = errors.Join(err, c.Place.Close())
	}()
	if c.Groups, err = hostcgroup.At(r.Cgroup.Dirs).Doors(); err != nil {
		return made, err
	}
	if c.Place, err = b.attached.Place(); err != nil {
		return made, err
	}
	return e.kinds.Parents.Fork(ctx, b.plan.key(), c)
}
