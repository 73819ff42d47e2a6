package qemu

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu/qmp"
)

// memoryDevice is the id of the virtio-mem device.
const memoryDevice = "growth"

const memoryPath = "/machine/peripheral/" + memoryDevice

const mib = 1 << 20

// Grow implements hypervisor.VM.
func (v *vm) Grow(ctx context.Context, totalMiB int) (int, error) {
	v.grow.Lock()
	defer v.grow.Unlock()
	m := v.record.Machine
	const step = hypervisor.MemoryStep
	want := (max(totalMiB-m.Memory, 0) + step - 1) / step * step
	if want > growable(m) {
		return 0, v.failed("run", "grow the memory", fmt.Errorf("%w: %d MiB, of at most %d", hypervisor.ErrInvalid, totalMiB, m.Memory+growable(m)))
	}
	if growable(m) == 0 {
		return m.Memory, nil
	}
	// QEMU limits the rate of these events and keeps the last one, so the
	// size is asked for after subscribing and believed from events then.
	sub := v.qmp.Subscribe("MEMORY_DEVICE_SIZE_CHANGE")
	defer sub.Cancel()
	err := v.qmp.Execute(ctx, "qom-set", map[string]any{
		"path": memoryPath, "property": "requested-size", "value": int64(want) * mib,
	}, nil)
	var size int64
	if err == nil {
		err = v.qmp.Execute(ctx, "qom-get", map[string]any{"path": memoryPath, "property": "size"}, &size)
	}
	for err == nil && size != int64(want)*mib {
		size, err = resized(ctx, sub, size)
	}
	reached := m.Memory + int(size/mib)
	if err != nil {
		return reached, v.failed("run", "grow the memory", fmt.Errorf("the guest has %d MiB of %d: %w", reached, m.Memory+want, v.deathOr(err)))
	}
	return reached, nil
}

func resized(ctx context.Context, sub *qmp.Subscription, size int64) (int64, error) {
	e, err := sub.Next(ctx)
	if err != nil {
		return size, err
	}
	var data struct {
		ID   string `json:"id"`
		Size int64  `json:"size"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return size, fmt.Errorf("%w: %w", qmp.ErrProtocol, err)
	}
	if data.ID != memoryDevice {
		return size, nil
	}
	return data.Size, nil
}
