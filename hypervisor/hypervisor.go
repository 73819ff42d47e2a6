// Package hypervisor says what Bulkhead needs of a virtual machine monitor.
// Package hypervisor/qemu implements it; package hypervisor/template keeps the
// saved machines that new ones are cloned from.
package hypervisor

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Accel is how a machine's instructions are executed.
type Accel string

// The accelerators. Auto is resolved by the probe before a machine starts and
// is never part of a VMConfig.
const (
	Auto Accel = "auto"
	KVM  Accel = "kvm"
	TCG  Accel = "tcg"
)

// Network is the kind of a machine's network device.
type Network string

// The kinds of network: no device at all; QEMU's user network in a network
// namespace whose loopback is empty; the same without any traffic leaving it
// (restrict=on); the same in the host's own namespace, whose loopback the
// guest then reaches; and a tap. Each is a kind of its own so that no machine made for
// it is ever another pod's.
const (
	NetworkNone         Network = "none"
	NetworkUser         Network = "user"
	NetworkRestricted   Network = "restricted"
	NetworkHostLoopback Network = "host-loopback"
	NetworkTap          Network = "tap"
	NetworkHost         Network = "host" // as NetworkHostLoopback, for pods of the host's network
)

// VMConfig is everything that shapes a virtual machine and that a template and
// its clones must have in common. Two equal VMConfigs (Key) are interchangeable.
type VMConfig struct {
	Kernel  string `json:"kernel"`  // path of an uncompressed PVH vmlinux
	Initrd  string `json:"initrd"`  // path
	Cmdline string `json:"cmdline"` // kernel command line, without console
	Accel   Accel  `json:"accel"`
	VCPUs   int    `json:"vcpus"` // at boot
	// MaxVCPUs is how many of them the guest can bring online, those of its boot included;
	// 0 is no more than these.
	MaxVCPUs int     `json:"maxVCPUs,omitempty"`
	Memory   int     `json:"memoryMiB"`    // at boot
	MaxMem   int     `json:"maxMemoryMiB"` // the most that virtio-mem can grow to, boot memory included
	Slots    int     `json:"slots"`        // virtio-blk devices that Attach fills
	Scratch  int     `json:"scratch"`      // how many of them, the first, are writable
	Network  Network `json:"network"`
}

// SlotSize is the size of every disk slot in a template. The disks of images, and scratch
// disks, are sparse files of this size at most, so that a guest need not be told theirs.
const SlotSize = slot.Size

// VM is a running machine. Its methods may be called at once from several
// goroutines. Each returns an *Error that carries the process's stderr and the
// last lines of the console.
type VM interface {
	// Process is the monitor's process.
	Process() procid.ID
	// Record is what Driver.Adopt takes the machine over with.
	Record() Record
	// Timings are the phases of its start, in order; none when adopted.
	Timings() []Timing
	// Connect connects to the guest's virtio-serial port. One connection is
	// served at a time, any number in sequence: close one before you use the
	// next. Its error matches ErrSpent when Options.Connections are used up.
	Connect(ctx context.Context) (net.Conn, error)
	// Pause stops the virtual CPUs; Resume lets them go on. Both are
	// idempotent.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Grow sets the guest's memory to total MiB, or back, and returns when the
	// guest has accepted it, with the size it has reached; its kernel may put
	// the last part to use some milliseconds later. To shrink takes seconds.
	// An error of ctx comes with the size that was reached until then.
	Grow(ctx context.Context, totalMiB int) (int, error)
	// AddCards gives a running machine of NetworkTap one more network card for each tap, which
	// the guest finds by its hardware address (card.MAC) some 100 ms later. It may be called
	// once, with at most card.Most. The caller keeps the taps. A machine with which it fails is
	// of no more use.
	AddCards(ctx context.Context, taps []*os.File) error
	// Attach puts disk, a regular file or a block device, into an empty slot of the
	// given mode, which the guest sees as the block device with serial
	// SlotSerial(slot). The caller keeps disk, which is open for writing only
	// if mode is ReadWrite. The machine's process has the same open file, and the
	// locks on it, until Detach or its end. A guest goes on with the size that the slot
	// had before, SlotSize at first: what it wants beyond the disk's end fails. It sees
	// the disk's own size when its driver binds to the device again, or after Resize.
	Attach(ctx context.Context, slot int, disk *os.File, mode DiskMode) error
	// Resize has the guest see a size, in bytes, of the disk in a writable slot. A regular
	// file becomes as long as that.
	Resize(ctx context.Context, slot int, size int64) error
	// Detach makes a slot empty again; an empty slot stays so.
	Detach(ctx context.Context, slot int) error
	// Save pauses the machine and writes its device state into state; with
	// the memory file that it was booted with, it can then be cloned. The
	// machine stays paused. Save waits first until nobody is connected to
	// Channel: a machine that is saved in the middle of a conversation may
	// have clones that are deaf.
	Save(ctx context.Context, state *os.File) error
	// Done is closed when the machine is no more; Exit then says why: nil
	// for a guest that has shut itself down.
	Done() <-chan struct{}
	Exit() error
	// Explain makes an *Error of err, a failure that the caller has seen from
	// outside (an agent that does not answer), with what the machine has said
	// and, if it has ended, why.
	Explain(op string, err error) error
	// Kill ends the machine and returns when its process is gone. It
	// succeeds for one that is gone already.
	Kill(ctx context.Context) error
	// Close lets go of the machine without ending it. After it only Kill,
	// Process and Record may be used, and Done may never be closed.
	Close() error
}

// Timing is how long one phase of a machine's start took.
type Timing struct {
	Phase string        `json:"phase"`
	Took  time.Duration `json:"took"`
}

// DiskMode says whether the guest may write a disk.
type DiskMode bool

// The disk modes.
const (
	ReadOnly  DiskMode = false
	ReadWrite DiskMode = true
)
