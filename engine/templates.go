package engine

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

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
