// Package kinds decides the sizes and configurations of an engine's VMs, and prepares the templates and parents of each
// kind of VM.
package kinds

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/networks"
	"github.com/bulkhead-project/bulkhead/engine/parents"
	"github.com/bulkhead-project/bulkhead/engine/vms"
	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
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

// Kinds are the kinds of VMs of an engine.
type Kinds struct {
	VMs      vms.Source
	Parents  Parents // nil if VMs are not forked
	Networks *networks.Networks
	// Network is the kind of network for pods that choose none.
	Network  network.Kind
	Guest    guest.Bundle
	Host     sizing.Host
	Defaults sizing.Defaults
}

// SizeOf returns the size of a pod's VM.
func (k *Kinds) SizeOf(pod sizing.Demand, containers []sizing.Demand) (sizing.Size, error) {
	return sizing.SizeOf(pod, containers, k.Host, k.Defaults)
}

// Config returns the configuration of a VM with that many virtual CPUs and that much memory, in MiB. note says why no
// better accelerator is available.
func (k *Kinds) Config(
	ctx context.Context, vcpus, memory int, accel hypervisor.Accel, p network.Provider,
) (m hypervisor.VMConfig, note string, err error) {
	if accel == "" {
		accel = hypervisor.Auto
	}
	accel, note, err = k.VMs.Accel(ctx, accel)
	if err != nil {
		return m, "", err
	}
	common, err := k.SizeOf(sizing.Demand{}, nil)
	if err != nil {
		return m, "", err
	}
	kind, _ := p.Kind()
	return vms.Of(k.Guest, k.Host, vcpus, memory, common.MemoryMiB, accel, networks.DeviceOf(kind)), note, nil
}

// Accel returns the accelerator for pods that choose none, with a note if a better one is unavailable.
func (k *Kinds) Accel(ctx context.Context) (accel hypervisor.Accel, note string, err error) {
	return k.VMs.Accel(ctx, hypervisor.Auto)
}

// DefaultNetwork returns the kind of network for pods that choose none, with a note if a better kind is unavailable.
// Its error says why pods cannot be attached now.
func (k *Kinds) DefaultNetwork(ctx context.Context) (kind network.Kind, note string, err error) {
	p, err := k.Networks.Get(k.Network)
	if err != nil {
		return "", "", err
	}
	kind, note = p.Kind()
	return kind, note, p.Status(ctx)
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
func (k *Kinds) Templates(ctx context.Context) ([]Template, error) {
	saved, err := k.VMs.List(ctx)
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

// Request names the kind of some pods' VMs. Empty fields select the defaults of a pod.
type Request struct {
	VCPUs, MemoryMiB int
	Accel, Network   string
	// Tenant is the owner of the pods, for Warm. Templates are shared by all tenants.
	Tenant string
}

// Ensure builds a template unless it exists, and returns its key.
func (k *Kinds) Ensure(ctx context.Context, r Request) (string, error) {
	m, err := k.configOf(ctx, r)
	if err != nil {
		return "", fmt.Errorf("build a template: %w", err)
	}
	t, err := k.VMs.Template(ctx, m, nil)
	if err != nil {
		return "", fmt.Errorf("build a template: %w", err)
	}
	t.Release()
	return t.Key, nil
}

// Warm prepares a parent for VMs of a kind and a tenant, and returns when it can be forked. Without Warm, the
// engine prepares one some time after the first such start.
func (k *Kinds) Warm(ctx context.Context, r Request) error {
	m, err := k.configOf(ctx, r)
	if err == nil && k.Parents == nil {
		err = parents.ErrNone
	}
	if err == nil {
		err = k.Parents.Ready(ctx, parents.Key{VM: m, Tenant: r.Tenant})
	}
	return failure.Wrap(err, "prepare a parent")
}

// configOf returns the configuration of the VMs of a request's pods.
func (k *Kinds) configOf(ctx context.Context, r Request) (m hypervisor.VMConfig, err error) {
	kind := network.Kind(r.Network)
	if kind == "" {
		kind = network.KindUser
	}
	p, err := k.Networks.Get(kind)
	if err != nil {
		return m, err
	}
	memory := r.MemoryMiB
	if memory == 0 {
		size, err := k.SizeOf(sizing.Demand{}, nil)
		if err != nil {
			return m, err
		}
		memory = size.MemoryMiB
	}
	m, _, err = k.Config(ctx, max(r.VCPUs, 1), memory, hypervisor.Accel(r.Accel), p)
	return m, err
}

// removeWait bounds the wait for a template that is being built or opened.
const removeWait = 2 * time.Minute

// Remove removes the template with that key. VMs cloned from it keep running.
func (k *Kinds) Remove(ctx context.Context, key string) error {
	ctx, cancel := context.WithTimeout(ctx, removeWait)
	defer cancel()
	return k.VMs.Remove(ctx, key)
}
