package hypervisor

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/containerd/errdefs"
)

// ErrInvalid is returned for a VMConfig that cannot be started.
var ErrInvalid = errdefs.ErrInvalidArgument.WithMessage("invalid VM configuration")

// Limits of a VMConfig.
const (
	MaxVCPUs = 64
	MaxSlots = 16
	// MemoryStep is the unit of a VM's memory sizes, in MiB. Linux guests plug and unplug memory in this unit.
	MemoryStep = 2
)

// The names of the guest's virtio-serial ports, for the channel and for shares.
const (
	ChannelPort = "io.bulkhead.channel"
	SharePort   = "io.bulkhead.share"
)

// ShareSocket is the name of a socket in the VM's directory (Options.Dir). The share server connects to SharePort
// there. One connection is served at a time.
const ShareSocket = "fs"

// SlotSerial returns the serial number that identifies a slot's disk in the guest.
func SlotSerial(slot int) string { return "slot" + strconv.Itoa(slot) }

// SlotMode returns the mode of a slot: the first Scratch slots are writable, the others are not. It cannot change in a
// running guest.
func (m VMConfig) SlotMode(slot int) DiskMode { return DiskMode(slot < m.Scratch) }

// CanHave returns the most virtual CPUs that the guest can have.
func (m VMConfig) CanHave() int { return max(m.VCPUs, m.MaxVCPUs) }

var networks = []Network{
	NetworkNone, NetworkUser, NetworkRestricted, NetworkHostLoopback, NetworkTap, NetworkAdopted, NetworkHost,
}

// Validate returns an error that names the first impossible field, and matches ErrInvalid.
func (m VMConfig) Validate() error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch {
	case m.Kernel == "":
		return bad("no kernel")
	case m.Accel != KVM && m.Accel != TCG:
		return bad("accelerator %q is not %s or %s", m.Accel, KVM, TCG)
	case m.VCPUs < 1 || m.VCPUs > MaxVCPUs:
		return bad("%d virtual CPUs, of 1 to %d", m.VCPUs, MaxVCPUs)
	case m.MaxVCPUs != 0 && (m.MaxVCPUs < m.VCPUs || m.MaxVCPUs > MaxVCPUs):
		return bad("at most %d virtual CPUs, with %d at boot, of at most %d", m.MaxVCPUs, m.VCPUs, MaxVCPUs)
	case m.Memory < 64 || m.Memory%MemoryStep != 0:
		return bad("%d MiB of memory, of 64 or more in steps of %d", m.Memory, MemoryStep)
	case m.MaxMem != 0 && (m.MaxMem < m.Memory || m.MaxMem%MemoryStep != 0):
		return bad("at most %d MiB of memory, with %d at boot", m.MaxMem, m.Memory)
	case m.Slots < 0 || m.Slots > MaxSlots:
		return bad("%d disk slots, of at most %d", m.Slots, MaxSlots)
	case m.Scratch < 0 || m.Scratch > m.Slots:
		return bad("%d writable disk slots, of %d", m.Scratch, m.Slots)
	case !slices.Contains(networks, m.Network):
		return bad("unknown network %q", m.Network)
	}
	return nil
}
