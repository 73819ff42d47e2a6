package qemu

import (
	"context"
	"fmt"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// memoryDevice is the id of the virtio-mem device.
const memoryDevice = "growth"

const memoryPath = "/machine/peripheral/" + memoryDevice

const mib = 1 << 20

// Grow implements hypervisor.VM.
func (v *vm) Grow(ctx context.Context, totalMiB int) (int, error) {
	v.grow.Lock()
	defer v.grow.Unlock()
	m := v.record.VM
	const step = hypervisor.MemoryStep
	want := (max(totalMiB-m.Memory, 0) + step - 1) / step * step
	if want > growable(m) {
		return 0, v.failed("run", "grow the memory",
			fmt.Errorf("%w: %d MiB, of at most %d", hypervisor.ErrInvalid, totalMiB, m.Memory+growable(m)))
	}
	if growable(m) == 0 {
		return m.Memory, nil
	}
	err := v.qmp.Execute(ctx, "qom-set", map[string]any{
		"path": memoryPath, "property": "requested-size", "value": int64(want) * mib,
	}, nil)
	var size int64
	if err == nil {
		size, err = v.resized(ctx, int64(want)*mib)
	}
	reached := m.Memory + int(size/mib)
	if err != nil {
		return reached, v.failed("run", "grow the memory", fmt.Errorf("the guest has %d MiB of %d: %w", reached, m.Memory+want, v.deathOr(err)))
	}
	return reached, nil
}

// sizeInterval is the interval of polling the guest's progress. QEMU has the event MEMORY_DEVICE_SIZE_CHANGE, but sends
// it at most once a second. A guest plugs hundreds of MiB in a twentieth of that time.
const sizeInterval = 2 * time.Millisecond

// resized waits until the guest has want bytes of the device.
func (v *vm) resized(ctx context.Context, want int64) (size int64, err error) {
	tick := time.NewTicker(sizeInterval)
	defer tick.Stop()
	for {
		err := v.qmp.Execute(ctx, "qom-get", map[string]any{"path": memoryPath, "property": "size"}, &size)
		if err != nil || size == want {
			return size, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return size, ctx.Err()
		}
	}
}
