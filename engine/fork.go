package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/engine/disks"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/parents"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
	"github.com/bulkhead-project/bulkhead/image/scratch"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/hostcgroup"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// Parents forks parents. The engine uses *parents.Parents; tests have fakes.
type Parents interface {
	Fork(ctx context.Context, key parents.Key, c parents.Child) (hypervisor.Record, error)
	// Want announces starts of pods with a key.
	Want(key parents.Key)
	// Ready waits until a parent for the key can be forked.
	Ready(ctx context.Context, key parents.Key) error
	// Failed reports that a fork made at forked did not come up although a clone did.
	Failed(key parents.Key, forked time.Time)
	Close() error
}

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

// Warm prepares a parent for VMs of a kind and a tenant, and returns when it can be forked. Without Warm, the
// engine prepares one some time after the first such start.
func (e *Engine) Warm(ctx context.Context, r TemplateRequest) error {
	m, err := e.vmConfigOf(ctx, r)
	if err == nil && e.parents == nil {
		err = parents.ErrNone
	}
	if err == nil {
		err = e.parents.Ready(ctx, parents.Key{VM: m, Tenant: r.Tenant})
	}
	return failure.Wrap(err, "prepare a parent")
}

// whyNoFork returns why the pod must not be forked, or "". A fork has an empty disk of the default size.
func (b *building) whyNoFork() (measure.NotForked, string) {
	switch {
	case b.e.parents == nil:
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
	return e.parents.Fork(ctx, b.plan.key(), c)
}

// Template is a saved VM on disk. Pods are cloned from it.
type Template struct {
	Key              string
	Bytes            int64 // on disk
	Built            time.Time
	Reason           string // why it was built
	VCPUs, MemoryMiB int
	Accel, Network   string
	// Old reports that no pod will be cloned from it any more: the guest, QEMU or the format has changed.
	Old bool
}

// Templates returns the templates on disk.
func (e *Engine) Templates(ctx context.Context) ([]Template, error) {
	saved, err := e.vms.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the templates: %w", err)
	}
	out := make([]Template, 0, len(saved))
	for _, s := range saved {
		// An error's text: "find template KEY: no template: none has been built yet".
		reason := strings.TrimPrefix(s.Reason, "find template "+s.Key+": ")
		out = append(out, Template{
			Key: s.Key, Bytes: s.Disk, Built: s.Built, Reason: strings.TrimPrefix(reason, template.ErrMiss.Error()+": "),
			VCPUs: s.VM.VCPUs, MemoryMiB: s.VM.Memory, Accel: string(s.VM.Accel), Network: string(s.VM.Network),
			Old: s.Old,
		})
	}
	return out, nil
}

// TemplateRequest asks for the template of some pods' VMs. Empty fields select the defaults of a pod.
type TemplateRequest struct {
	VCPUs, MemoryMiB int
	Accel, Network   string
	// Tenant is the owner of the pods, for Warm. Templates are shared by all tenants.
	Tenant string
}

// EnsureTemplate builds a template unless it exists, and returns its key.
func (e *Engine) EnsureTemplate(ctx context.Context, r TemplateRequest) (string, error) {
	key, err := e.ensureTemplate(ctx, r)
	if err != nil {
		return "", fmt.Errorf("build a template: %w", err)
	}
	return key, nil
}

func (e *Engine) ensureTemplate(ctx context.Context, r TemplateRequest) (string, error) {
	m, err := e.vmConfigOf(ctx, r)
	if err != nil {
		return "", err
	}
	t, err := e.vms.Template(ctx, m, nil)
	if err != nil {
		return "", err
	}
	t.Release()
	return t.Key, nil
}

// vmConfigOf returns the configuration of the VMs of a request's pods.
func (e *Engine) vmConfigOf(ctx context.Context, r TemplateRequest) (m hypervisor.VMConfig, err error) {
	kind := network.Kind(r.Network)
	if kind == "" {
		kind = network.KindUser
	}
	p, err := e.networks.Get(kind)
	if err != nil {
		return m, err
	}
	memory := r.MemoryMiB
	if memory == 0 {
		size, err := e.sizeOf(sizing.Demand{}, nil)
		if err != nil {
			return m, err
		}
		memory = size.MemoryMiB
	}
	m, _, err = e.vmConfigFor(ctx, max(r.VCPUs, 1), memory, hypervisor.Accel(r.Accel), p)
	return m, err
}

// removeWait bounds the wait for a template that is being built or opened.
const removeWait = 2 * time.Minute

// RemoveTemplate removes the template with that key. VMs cloned from it keep running.
func (e *Engine) RemoveTemplate(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	return e.vms.Remove(ctx, key)
}
