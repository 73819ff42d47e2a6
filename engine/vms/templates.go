package vms

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/engine/measure"
	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/probe"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/hypervisor/template"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/pace"
	"github.com/bulkhead-project/bulkhead/sandbox/ready"
)

// buildTimeout bounds the building of a template: a cold boot under emulation on a busy host.
const buildTimeout = 2 * time.Minute

// Templates holds the templates of this host, which QEMU clones. The memory of a template is held until Close, or
// until it is removed and no clone is being started from it.
type Templates struct {
	qemu     qemu.Driver
	driver   hypervisor.Driver
	store    *template.Store
	guest    template.Guest
	prober   prober
	log      *slog.Logger
	observer measure.Observer

	// build is held while a template is opened or built, so that concurrent pods do not hash and build the same
	// one.
	build sync.Mutex

	mu   sync.Mutex
	open map[hypervisor.VMConfig]*heldTemplate
}

// heldTemplate is an open template.
type heldTemplate struct {
	*template.Template
	memory   *os.File
	pace     pace.Pace // of clones, from their start until they are up
	failures int       // failed clones since the last good one; guarded by mu
	users    int       // starts that use its files; guarded by mu
	dropped  bool      // close after the last user; guarded by mu
}

// Open finds QEMU and the templates in roots. b is the guest bundle of the templates.
func Open(roots dirs.Roots, b guest.Bundle, log *slog.Logger, o measure.Observer) (*Templates, error) {
	driver, err := qemu.New()
	if err != nil {
		return nil, err
	}
	if err := roots.Ensure(); err != nil {
		return nil, err
	}
	sockets := filepath.Join(roots.State, "p")
	if err := dirs.Ensure(sockets, 0o711); err != nil {
		return nil, err
	}
	h := &Templates{
		qemu:     driver,
		driver:   driver,
		store:    template.Open(roots, driver),
		guest:    ready.Steady,
		log:      log,
		observer: o,
		open:     map[hypervisor.VMConfig]*heldTemplate{},
	}
	h.prober.Prober = probe.Prober{
		Driver: driver, Check: ready.Answering, Path: filepath.Join(roots.State, "kvm.json"), Dir: sockets,
		VM: hypervisor.VMConfig{Kernel: b.KernelPath(), Initrd: b.InitrdPath(), Cmdline: b.Cmdline},
	}
	return h, nil
}

// QEMU returns the driver that clones the templates.
func (h *Templates) QEMU() qemu.Driver { return h.qemu }

// Accel resolves the requested accelerator by a probe.
func (h *Templates) Accel(ctx context.Context, wish hypervisor.Accel) (hypervisor.Accel, string, error) {
	accel, verdict, err := h.prober.resolve(ctx, wish)
	if err != nil {
		return "", "", err
	}
	note := ""
	if accel == hypervisor.TCG && wish != hypervisor.TCG {
		note = verdict.Reason
	}
	return accel, note, nil
}

// Template opens or builds a template. It logs why a template was missing.
func (h *Templates) Template(ctx context.Context, m hypervisor.VMConfig, building func()) (*Template, error) {
	t, built, err := h.template(ctx, m, building)
	switch {
	case err != nil:
		h.observer.Count(measure.TemplateFailed, 1)
	case built:
		h.observer.Count(measure.TemplateBuilt, 1)
	default:
		h.observer.Count(measure.TemplateHit, 1)
	}
	return t, err
}

func (h *Templates) template(ctx context.Context, m hypervisor.VMConfig, building func()) (_ *Template, built bool, err error) {
	if t := h.held(m); t != nil {
		return t, false, nil
	}
	if building != nil {
		if key, err := h.store.Key(ctx, m); err == nil && !h.store.Has(key) {
			building()
		}
	}
	h.build.Lock()
	defer h.build.Unlock()
	if t := h.held(m); t != nil {
		return t, false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, pace.Stretch(buildTimeout))
	defer cancel()
	began := time.Now()
	t, why, err := h.store.Ensure(ctx, m, h.guest)
	if err != nil {
		return nil, false, err
	}
	if why != nil {
		h.log.Info("template built", "key", t.Info.Key, "why", why, "vcpus", m.VCPUs, "accel", m.Accel,
			"network", m.Network, "took", time.Since(began), "tries", t.Info.Tries, "condemned", t.Info.Condemned)
	}
	memory, err := t.Memory()
	if err != nil {
		return nil, false, errors.Join(err, t.Close())
	}
	held := &heldTemplate{Template: t, memory: memory}
	held.pace.Observe(t.Info.Answered, 1)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[m] = held
	return h.out(held), why != nil, nil
}

// The patience for the first answer of a clone is a multiple of the expected time, within bounds. It may be tight:
// a clone that is given up early is replaced by another one, with twice the time.
const (
	patienceTimes = 3
	leastPatience = 1500 * time.Millisecond
	mostPatience  = 4 * time.Second
)

// out returns the parts of a clone. It is called with mu held.
func (h *Templates) out(t *heldTemplate) *Template {
	patience := min(max(patienceTimes*t.pace.Expect(pace.Load()), pace.Stretch(leastPatience)), pace.Stretch(mostPatience))
	t.users++
	return &Template{
		Key: t.Info.Key, Memory: t.memory, State: t.State(), Patience: patience << t.failures,
		Release: sync.OnceFunc(func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			t.users--
			h.closeUnused(t)
		}),
	}
}

// drop makes sure that no more clones start from m's template. A start that already uses it continues. It is called
// with mu held.
func (h *Templates) drop(m hypervisor.VMConfig, t *heldTemplate) {
	delete(h.open, m)
	t.dropped = true
	h.closeUnused(t)
}

// closeUnused is called with mu held.
func (h *Templates) closeUnused(t *heldTemplate) {
	if !t.dropped || t.users > 0 {
		return
	}
	if err := t.Close(); err != nil {
		h.log.Warn("give a template's memory back", "key", t.Info.Key, "error", err)
	}
}

// Answered implements Source.
func (h *Templates) Answered(m hypervisor.VMConfig, took time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.open[m]; t != nil {
		t.pace.Observe(took, pace.Load())
		t.failures = 0
	}
}

// mostFailures is how many clones in a row may fail before their template is condemned.
const mostFailures = 2

// Failed implements Source.
func (h *Templates) Failed(ctx context.Context, m hypervisor.VMConfig, key string, why error) {
	h.mu.Lock()
	t := h.open[m]
	if t == nil || t.Info.Key != key {
		h.mu.Unlock()
		return
	}
	t.failures++
	condemned := t.failures == mostFailures
	if condemned {
		h.drop(m, t)
	}
	h.mu.Unlock()
	if !condemned {
		return
	}
	n, err := h.store.Condemn(ctx, t.Template, fmt.Sprintf("%d clones in a row failed: %v", mostFailures, why))
	if err != nil {
		h.log.Error("condemn a template", "key", key, "error", err)
		return
	}
	h.log.Warn("template condemned, the next start builds another", "key", key, "condemned", n, "error", why)
}

// held returns the open template of m, unless it was removed from the store.
func (h *Templates) held(m hypervisor.VMConfig) *Template {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.open[m]
	if t == nil {
		return nil
	}
	if !h.store.Current(t.Template) {
		h.drop(m, t)
		return nil
	}
	return h.out(t)
}

// End ends the VM with its sockets in dir.
func (h *Templates) End(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return h.driver.End(ctx, dir)
}

// Reap removes the remains of killed builders of templates.
func (h *Templates) Reap(ctx context.Context) error { return h.store.Reap(ctx) }

// Saved is a template on disk.
type Saved struct {
	template.Info
	// Old reports that no VM will be cloned from it any more: the guest, QEMU or the format has changed.
	Old bool
}

// List returns the templates on disk.
func (h *Templates) List(ctx context.Context) ([]Saved, error) {
	infos, err := h.store.List()
	if err != nil {
		return nil, err
	}
	list := make([]Saved, 0, len(infos))
	for _, i := range infos {
		key, err := h.store.Key(ctx, i.VM)
		list = append(list, Saved{Info: i, Old: err != nil || key != i.Key})
	}
	return list, nil
}

// Remove removes the template with that key. VMs cloned from it keep running.
func (h *Templates) Remove(ctx context.Context, key string) error {
	err := h.store.Remove(ctx, key)
	h.mu.Lock()
	defer h.mu.Unlock()
	for m, t := range h.open {
		if t.Info.Key == key && !h.store.Current(t.Template) {
			h.drop(m, t)
		}
	}
	return err
}

// Close releases the templates' memory, or lets the last user release it. Clones keep theirs.
func (h *Templates) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m, t := range h.open {
		h.drop(m, t)
	}
	return nil
}
