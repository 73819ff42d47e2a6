package machines

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

// buildTimeout bounds the building of a template: a cold boot, under emulation
// and beside others.
const buildTimeout = 2 * time.Minute

// Templates are the templates of this host, which QEMU clones. The memory of each is
// held until Close, or until it is removed and no clone is being started from it.
type Templates struct {
	qemu   qemu.Driver
	driver hypervisor.Driver
	store  *template.Store
	guest  template.Guest
	prober prober
	log    *slog.Logger
	told   measure.Observer

	// build is held while a template is opened or built, so that pods that
	// need the same one do not hash and build it at once.
	build sync.Mutex

	mu   sync.Mutex
	open map[hypervisor.VMConfig]*heldTemplate
}

// heldTemplate is a template that is open.
type heldTemplate struct {
	*template.Template
	memory   *os.File
	pace     pace.Pace // of clones, from their start to their being up
	failures int       // of clones since the last one that was up; guarded by mu
	users    int       // starts that have its files; guarded by mu
	dropped  bool      // closed with the last user; guarded by mu
}

// Open finds QEMU and the templates in roots. The guest is what they boot.
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
		qemu:   driver,
		driver: driver,
		store:  template.Open(roots, driver),
		guest:  ready.Steady,
		log:    log,
		told:   o,
		open:   map[hypervisor.VMConfig]*heldTemplate{},
	}
	h.prober.Prober = probe.Prober{
		Driver: driver, Check: ready.Answering, Path: filepath.Join(roots.State, "kvm.json"), Dir: sockets,
		Machine: hypervisor.VMConfig{Kernel: b.KernelPath(), Initrd: b.InitrdPath(), Cmdline: b.Cmdline},
	}
	return h, nil
}

// QEMU is what clones the templates.
func (h *Templates) QEMU() qemu.Driver { return h.qemu }

// Accel resolves a wish by the probe.
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

// Template opens or builds a template. A miss is logged with its reason.
func (h *Templates) Template(ctx context.Context, m hypervisor.VMConfig, building func()) (*Template, error) {
	t, built, err := h.template(ctx, m, building)
	switch {
	case err != nil:
		h.told.Count(measure.TemplateFailed, 1)
	case built:
		h.told.Count(measure.TemplateBuilt, 1)
	default:
		h.told.Count(measure.TemplateHit, 1)
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

// Of the first answer of a clone: how many times what is expected it may take, and
// the bounds of that. It may be tight: who is given up too early gets another
// clone, which has twice the time.
const (
	patienceTimes = 3
	leastPatience = 1500 * time.Millisecond
	mostPatience  = 4 * time.Second
)

// out is what a clone is made of. It is called with mu held.
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

// drop has no more clones be started from m's template. A start that has just taken it
// goes on with it. It is called with mu held.
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

// mostFailures is how many clones in a row may fail before their template is
// condemned.
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

// held is the open template of m, until somebody removes it from the store.
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

// End ends whatever machine has its sockets in dir.
func (h *Templates) End(ctx context.Context, dir string) error {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return h.driver.End(ctx, dir)
}

// Reap clears up after builders of templates that were killed.
func (h *Templates) Reap(ctx context.Context) error { return h.store.Reap(ctx) }

// Saved is a template on disk.
type Saved struct {
	template.Info
	// Old says that no VM will be cloned from it any more: the guest, QEMU or the
	// format is another.
	Old bool
}

// List tells of the templates on disk.
func (h *Templates) List(ctx context.Context) ([]Saved, error) {
	infos, err := h.store.List()
	if err != nil {
		return nil, err
	}
	list := make([]Saved, 0, len(infos))
	for _, i := range infos {
		key, err := h.store.Key(ctx, i.Machine)
		list = append(list, Saved{Info: i, Old: err != nil || key != i.Key})
	}
	return list, nil
}

// Remove removes the template with that key. VMs that were cloned from it run on.
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

// Close gives the templates' memory back, that of one in use when it is released;
// clones keep theirs.
func (h *Templates) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for m, t := range h.open {
		h.drop(m, t)
	}
	return nil
}
