// Package devices gives the VM of a sandbox its disks, network cards and memory. A sandbox has one VM after the other:
// Begin names the current one, and Reset ends it. A change of another VM is not recorded.
package devices

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/sandbox/internal/disks"
	"github.com/bulkhead-project/bulkhead/sandbox/internal/guest"
)

// Record is the stored form of the devices.
type Record struct {
	// Images are the ids of the images in the VM's disk slots.
	Images map[int]string `json:"images,omitempty"`
	// Volumes are the names of the block devices in the VM's disk slots.
	Volumes map[int]string `json:"volumes,omitempty"`
	// Cards reports that the VM has got its further cards since it runs, or some of them.
	Cards     bool `json:"cards,omitempty"`
	MemoryMiB int  `json:"memoryMiB,omitempty"`
}

// Devices are the devices of a sandbox. New creates them. Methods are safe for concurrent use.
type Devices struct {
	Slots disks.Slots
	limit time.Duration
	store func() error

	mu        sync.Mutex
	vm        *guest.Live // nil without a VM
	cards     bool        // Record.Cards
	memoryMiB int
	scratch   *os.File
	taps      []*os.File // that the VM has not received yet
}

// New returns devices without a VM. limit bounds a call to the agent. store stores the result of Record.
func New(limit time.Duration, store func() error) *Devices {
	return &Devices{limit: limit, store: store}
}

// TakeFiles takes over the scratch disk, which may be nil, and the taps for the first VM. Close closes them.
func (d *Devices) TakeFiles(scratch *os.File, taps []*os.File) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.scratch, d.taps = scratch, taps
}

// Close closes the files.
func (d *Devices) Close() (err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.scratch != nil {
		err = d.scratch.Close()
	}
	for _, f := range d.taps {
		_ = f.Close() // a tap has nothing to lose
	}
	d.scratch, d.taps = nil, nil
	return err
}

// Begin makes m the current VM.
func (d *Devices) Begin(m *guest.Live, memoryMiB int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vm, d.memoryMiB = m, memoryMiB
}

// Restore is Begin for a VM that an earlier shim has left, with the record of its devices.
func (d *Devices) Restore(m *guest.Live, r Record) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vm, d.memoryMiB, d.cards = m, r.MemoryMiB, r.Cards
	d.Slots.Restore(r.Images, r.Volumes)
}

// Reset forgets the VM and its devices after its end.
func (d *Devices) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.vm, d.memoryMiB, d.cards = nil, 0, false
	d.Slots.Reset()
}

// Record returns the present devices.
func (d *Devices) Record() Record {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := Record{Cards: d.cards, MemoryMiB: d.memoryMiB}
	r.Images, r.Volumes = d.Slots.Stored()
	return r
}

// Disks returns the VM in the form that its slots need. They are stored while the VM is the current one.
func (d *Devices) Disks(m *guest.Live) disks.VM {
	return disks.VM{VM: m.VM, Agent: m.Agent, Undo: d.limit, Store: func() error {
		d.mu.Lock()
		current := d.vm == m
		d.mu.Unlock()
		if !current {
			return nil // the end of the VM has emptied its slots
		}
		return d.store()
	}}
}

// HasScratch reports whether there is a scratch disk.
func (d *Devices) HasScratch() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.scratch != nil
}

// MountScratch mounts the scratch disk in the VM.
func (d *Devices) MountScratch(ctx context.Context, m *guest.Live) error {
	d.mu.Lock()
	scratch := d.scratch
	d.mu.Unlock()
	return d.Slots.MountScratch(ctx, d.Disks(m), scratch)
}

// Drop drops a deleted container's uses of disks, unless its VM has ended.
func (d *Devices) Drop(m *guest.Live, names []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if m == nil || m != d.vm {
		return
	}
	for _, name := range names {
		d.Slots.Drop(name)
	}
}

// Release detaches the volumes that no container uses.
func (d *Devices) Release(ctx context.Context, m *guest.Live) error {
	if m.Context().Err() != nil {
		return nil // the VM is gone, so its slots are free
	}
	call, done := m.Call(ctx, d.limit)
	defer done()
	return d.Slots.Release(call, d.Disks(m))
}

// AddCards attaches the cards of the pod's further interfaces. The agent waits for them when it is configured.
func (d *Devices) AddCards(ctx context.Context, m *guest.Live) error {
	d.mu.Lock()
	taps := d.taps
	d.taps = nil
	d.mu.Unlock()
	for _, f := range taps {
		defer f.Close()
	}
	if len(taps) == 0 {
		return fmt.Errorf("%w: it cannot be restarted: the taps of its further interfaces belonged to its first VM", errdefs.ErrInvalidArgument)
	}
	return m.VM.AddCards(ctx, taps)
}

// AddLater plugs cards into a running VM, once. A repeated request brings the same cards, and after a failure the VM may
// have some of them.
func (d *Devices) AddLater(ctx context.Context, m *guest.Live, taps []*os.File) error {
	d.mu.Lock()
	again := d.cards
	d.cards = true
	d.mu.Unlock()
	if again {
		return nil
	}
	if err := d.store(); err != nil {
		return err
	}
	return m.VM.AddCards(ctx, taps)
}

// Grow grows the VM's memory to at least total MiB.
func (d *Devices) Grow(ctx context.Context, m *guest.Live, total int) error {
	if total <= d.Record().MemoryMiB {
		return nil
	}
	reached, err := d.resize(ctx, m, total)
	if err == nil && reached < total {
		err = fmt.Errorf("the guest accepted %d MiB of %d", reached, total)
	}
	if err != nil {
		return fmt.Errorf("grow the memory: %w", err)
	}
	return nil
}

// Shrink shrinks the VM's memory to total MiB, unless that is 0. The guest may release less.
func (d *Devices) Shrink(ctx context.Context, m *guest.Live, total int) error {
	if total <= 0 || total >= d.Record().MemoryMiB {
		return nil
	}
	_, err := d.resize(ctx, m, total)
	return err
}

func (d *Devices) resize(ctx context.Context, m *guest.Live, total int) (reached int, err error) {
	reached, err = m.VM.Grow(ctx, total)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.vm == m && reached > 0 {
		d.memoryMiB = reached
	}
	return reached, err
}
