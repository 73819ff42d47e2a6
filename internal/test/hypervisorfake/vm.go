package hypervisorfake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/api/card"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// vm is one owner's handle of a VM.
type vm struct{ *vmState }

func (v *vm) Process() procid.ID           { return v.record.Process }
func (v *vm) Record() hypervisor.Record    { return v.record }
func (v *vm) Timings() []hypervisor.Timing { return nil }
func (v *vm) Done() <-chan struct{}        { return v.done }
func (v *vm) Close() error                 { return nil }

func (v *vm) Connect(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(v.record.Dir, "ch"))
}

func (v *vm) failed(op string, err error) error {
	return &hypervisor.Error{Phase: "run", Op: op, Err: err, Console: v.tail()}
}

// alive is checked first by every operation.
func (v *vm) alive(ctx context.Context, op string) error {
	if v.ended() {
		return v.failed(op, hypervisor.ErrGone)
	}
	if err := ctx.Err(); err != nil {
		return v.failed(op, err)
	}
	return nil
}

func (v *vm) Pause(ctx context.Context) error  { return v.alive(ctx, "pause the VM") }
func (v *vm) Resume(ctx context.Context) error { return v.alive(ctx, "resume the VM") }

func (v *vm) Grow(ctx context.Context, totalMiB int) (int, error) {
	const op = "grow the memory"
	if err := v.alive(ctx, op); err != nil {
		return 0, err
	}
	m := v.record.VM
	if totalMiB > max(m.MaxMem, m.Memory) {
		return 0, v.failed(op, fmt.Errorf("%w: %d MiB, of at most %d", hypervisor.ErrInvalid, totalMiB, m.MaxMem))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	const step = hypervisor.MemoryStep
	v.memory = max(m.Memory, (totalMiB+step-1)/step*step)
	return v.memory, nil
}

func (v *vm) AddCards(ctx context.Context, taps []*os.File) error {
	const op = "plug network cards in"
	if err := v.alive(ctx, op); err != nil {
		return err
	}
	if !v.record.VM.Network.Tap() || len(taps) > card.Most {
		return v.failed(op, hypervisor.ErrInvalid)
	}
	return nil
}

func (v *vm) Attach(ctx context.Context, slot int, disk *os.File, mode hypervisor.DiskMode) error {
	op := fmt.Sprintf("attach a disk to slot %d", slot)
	if err := v.alive(ctx, op); err != nil {
		return err
	}
	info, err := disk.Stat()
	if err != nil {
		return v.failed(op, err)
	}
	v.mu.Lock()
	_, filled := v.disks[slot]
	v.mu.Unlock()
	m := v.record.VM
	switch {
	case slot < 0 || slot >= m.Slots, m.SlotMode(slot) != mode, filled,
		info.Mode().IsRegular() && info.Size() == 0:
		return v.failed(op, fmt.Errorf("%w: slot, mode or size", hypervisor.ErrInvalid))
	}
	fd, err := unix.FcntlInt(disk.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return v.failed(op, err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.disks[slot] = os.NewFile(uintptr(fd), disk.Name())
	return nil
}

func (v *vm) Resize(ctx context.Context, slot int, size int64) error {
	op := fmt.Sprintf("resize the disk of slot %d", slot)
	if err := v.alive(ctx, op); err != nil {
		return err
	}
	v.mu.Lock()
	valid := v.disks[slot] != nil && v.record.VM.SlotMode(slot) == hypervisor.ReadWrite && size > 0
	if valid {
		v.setSize(slot, size)
	}
	v.mu.Unlock()
	if !valid {
		return v.failed(op, hypervisor.ErrInvalid)
	}
	return nil
}

// setSize sets the size of a slot that the guest sees; the caller holds mu.
func (m *vmState) setSize(slot int, size int64) {
	if m.sizes == nil {
		m.sizes = map[int]int64{}
	}
	m.sizes[slot] = size
}

func (v *vm) Detach(ctx context.Context, slot int) error {
	op := fmt.Sprintf("detach the disk of slot %d", slot)
	if err := v.alive(ctx, op); err != nil {
		return err
	}
	if slot < 0 || slot >= v.record.VM.Slots {
		return v.failed(op, hypervisor.ErrInvalid)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if disk, ok := v.disks[slot]; ok {
		disk.Close()
		delete(v.disks, slot)
	}
	return nil
}

func (v *vm) Save(ctx context.Context, state *os.File) error {
	if err := v.alive(ctx, "save the VM"); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, err := state.WriteString(magic + string(v.guest.Value)); err != nil {
		return &hypervisor.Error{Phase: "save", Op: "save the VM", Err: err}
	}
	return nil
}

func (v *vm) Exit() error {
	if !v.ended() {
		return nil
	}
	v.mu.Lock()
	cause := v.exit
	v.mu.Unlock()
	if errors.Is(cause, errOff) {
		return nil
	}
	return &hypervisor.Error{Phase: "end", Op: "run the VM", Err: cause, Console: v.tail()}
}

func (v *vm) Explain(op string, err error) error {
	if v.ended() {
		err = fmt.Errorf("%w: %w", hypervisor.ErrGone, err)
	}
	return v.failed(op, err)
}

func (v *vm) Kill(ctx context.Context) error {
	v.end(errors.New("killed"))
	select {
	case <-v.done:
		return nil
	case <-ctx.Done():
		return v.failed("kill the VM", ctx.Err())
	}
}
