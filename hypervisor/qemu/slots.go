package qemu

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// A slot is a raw node, which the guest's device keeps forever, over a replaceable one: the empty node or the disk's.
// QEMU is asked which of them exists, so an adopted VM needs no record of it.
func slotNode(slot int) string  { return "slot" + strconv.Itoa(slot) }
func emptyNode(slot int) string { return slotNode(slot) + "-empty" }
func diskNode(slot int) string  { return slotNode(slot) + "-disk" }

// Attach implements hypervisor.VM.
func (v *vm) Attach(ctx context.Context, slot int, disk *os.File, mode hypervisor.DiskMode) error {
	op := fmt.Sprintf("attach a disk to slot %d", slot)
	if err := v.checkDisk(slot, disk, mode); err != nil {
		return v.failed("run", op, err)
	}
	v.disks.Lock()
	defer v.disks.Unlock()
	filled, err := v.filled(ctx, slot)
	if err == nil && filled {
		err = fmt.Errorf("%w: the slot is not empty", hypervisor.ErrInvalid)
	}
	if err == nil {
		err = v.fill(ctx, slot, disk, mode)
	}
	if err != nil {
		return v.failed("run", op, v.deathOr(err))
	}
	return nil
}

func (v *vm) checkDisk(slot int, disk *os.File, mode hypervisor.DiskMode) error {
	m := v.record.VM
	if slot < 0 || slot >= m.Slots {
		return fmt.Errorf("%w: the VM has %d slots", hypervisor.ErrInvalid, m.Slots)
	}
	if m.SlotMode(slot) != mode {
		return fmt.Errorf("%w: slots 0 to %d are writable, the others are not", hypervisor.ErrInvalid, m.Scratch-1)
	}
	info, err := disk.Stat()
	if err != nil {
		return err
	}
	if info.Mode().IsRegular() && info.Size() == 0 {
		return fmt.Errorf("%w: the disk is empty", hypervisor.ErrInvalid)
	}
	return nil
}

func (v *vm) fill(ctx context.Context, slot int, disk *os.File, mode hypervisor.DiskMode) error {
	set := slot + 1
	args := map[string]any{"fdset-id": set}
	if err := v.qmp.ExecuteFile(ctx, "add-fd", args, nil, disk); err != nil {
		return err
	}
	driver, err := driverOf(disk)
	if err != nil {
		return err
	}
	readOnly := mode == hypervisor.ReadOnly
	err = v.qmp.Execute(ctx, "blockdev-add", map[string]any{
		"driver": driver, "node-name": diskNode(slot), "filename": "/dev/fdset/" + strconv.Itoa(set),
		"read-only": readOnly, "discard": "unmap",
		// The owner of the disk locks it. QEMU's own locks would need more rights on a file that many VMs read.
		"locking": "off",
	}, nil)
	// QEMU holds a duplicate by now.
	if rmErr := v.qmp.Execute(ctx, "remove-fd", args, nil); err == nil {
		err = rmErr
	}
	if err != nil {
		return err
	}
	return v.reopen(ctx, slot, diskNode(slot))
}

// driverOf returns QEMU's driver for a block device or a file.
func driverOf(disk *os.File) (string, error) {
	info, err := disk.Stat()
	if err == nil && info.Mode()&(os.ModeDevice|os.ModeCharDevice) == os.ModeDevice {
		return "host_device", nil
	}
	return "file", err
}

// reopen replaces the node below a slot's.
func (v *vm) reopen(ctx context.Context, slot int, child string) error {
	return v.qmp.Execute(ctx, "blockdev-reopen", map[string]any{
		"options": []any{map[string]any{
			"driver": "raw", "node-name": slotNode(slot), "file": child,
			"read-only": v.record.VM.SlotMode(slot) == hypervisor.ReadOnly,
		}},
	}, nil)
}

// Resize implements hypervisor.VM.
func (v *vm) Resize(ctx context.Context, slot int, size int64) error {
	op := fmt.Sprintf("resize the disk of slot %d", slot)
	if m := v.record.VM; slot < 0 || slot >= m.Scratch || size <= 0 {
		return v.failed("run", op, fmt.Errorf("%w: %d bytes, of %d writable slots", hypervisor.ErrInvalid, size, m.Scratch))
	}
	v.disks.Lock()
	defer v.disks.Unlock()
	filled, err := v.filled(ctx, slot)
	if err == nil && !filled {
		err = fmt.Errorf("%w: the slot is empty", hypervisor.ErrInvalid)
	}
	if err == nil {
		err = v.qmp.Execute(ctx, "block_resize", map[string]any{"node-name": slotNode(slot), "size": size}, nil)
	}
	if err != nil {
		return v.failed("run", op, v.deathOr(err))
	}
	return nil
}

// Detach implements hypervisor.VM.
func (v *vm) Detach(ctx context.Context, slot int) error {
	op := fmt.Sprintf("detach the disk of slot %d", slot)
	if m := v.record.VM; slot < 0 || slot >= m.Slots {
		return v.failed("run", op, fmt.Errorf("%w: the VM has %d slots", hypervisor.ErrInvalid, m.Slots))
	}
	v.disks.Lock()
	defer v.disks.Unlock()
	filled, err := v.filled(ctx, slot)
	if err == nil && filled {
		err = v.reopen(ctx, slot, emptyNode(slot))
		if err == nil {
			err = v.qmp.Execute(ctx, "blockdev-del", map[string]any{"node-name": diskNode(slot)}, nil)
		}
	}
	if err != nil {
		return v.failed("run", op, v.deathOr(err))
	}
	return nil
}

// filled asks QEMU whether a slot's disk exists.
func (v *vm) filled(ctx context.Context, slot int) (bool, error) {
	var nodes []struct {
		Name string `json:"node-name"`
	}
	if err := v.qmp.Execute(ctx, "query-named-block-nodes", map[string]any{"flat": true}, &nodes); err != nil {
		return false, err
	}
	for _, n := range nodes {
		if n.Name == diskNode(slot) {
			return true, nil
		}
	}
	return false, nil
}
