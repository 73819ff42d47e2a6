// Package hypervisor defines the interface of a virtual machine monitor. Package hypervisor/qemu implements it. Package
// hypervisor/template keeps the saved VMs that new ones are cloned from.
package hypervisor

import (
	"context"
	"net"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/api/slot"
	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// Accel says how a VM's instructions are executed.
type Accel string

// The accelerators. The probe resolves Auto before a VM starts: a VMConfig never has it.
const (
	Auto Accel = "auto"
	KVM  Accel = "kvm"
	TCG  Accel = "tcg"
)

// Network is the kind of a VM's network device.
type Network string

// The kinds of network:
//   - NetworkNone: no device.
//   - NetworkUser: QEMU's user network, in a network namespace with an empty loopback.
//   - NetworkRestricted: NetworkUser, but no traffic leaves it (restrict=on).
//   - NetworkHostLoopback: QEMU's user network in the host's namespace. The guest can reach the host's loopback.
//   - NetworkTap: a tap in a namespace of the engine.
//   - NetworkAdopted: a tap in a namespace of a client.
//
// They are distinct kinds so that a VM started for one is never used for a pod of another.
const (
	NetworkNone         Network = "none"
	NetworkUser         Network = "user"
	NetworkRestricted   Network = "restricted"
	NetworkHostLoopback Network = "host-loopback"
	NetworkTap          Network = "tap"
	NetworkAdopted      Network = "adopted"
	NetworkHost         Network = "host" // like NetworkHostLoopback, for pods of the host's network
)

// Tap reports whether the device is a tap.
func (n Network) Tap() bool { return n == NetworkTap || n == NetworkAdopted }

// VMConfig is the configuration that a template and its clones must have in common. Two equal VMConfigs (Key) are
// interchangeable.
type VMConfig struct {
	Kernel  string `json:"kernel"`  // path of an uncompressed PVH vmlinux
	Initrd  string `json:"initrd"`  // path
	Cmdline string `json:"cmdline"` // kernel command line, without console
	Accel   Accel  `json:"accel"`
	VCPUs   int    `json:"vcpus"` // at boot
	// MaxVCPUs is the number of virtual CPUs that the guest can bring online, including VCPUs; 0 means VCPUs.
	MaxVCPUs int     `json:"maxVCPUs,omitempty"`
	Memory   int     `json:"memoryMiB"`    // at boot
	MaxMem   int     `json:"maxMemoryMiB"` // the most that virtio-mem can grow to, boot memory included
	Slots    int     `json:"slots"`        // virtio-blk devices that Attach fills
	Scratch  int     `json:"scratch"`      // the first Scratch slots are writable
	Network  Network `json:"network"`
}

// SlotSize is the size of every disk slot in a template. The disks of images and scratch disks are sparse files of at
// most this size, so the guest needs no notice of their own size.
const SlotSize = slot.Size

// VM is a running VM. Its methods are safe for concurrent use. Their errors are *Error values, with the end of the
// process's stderr and of the console.
type VM interface {
	// Process returns the monitor's process.
	Process() procid.ID
	// Record returns the data that Driver.Adopt needs.
	Record() Record
	// Timings returns the phases of the start, in order; none if the VM was adopted.
	Timings() []Timing
	// Connect connects to the guest's virtio-serial port. One connection is
	// served at a time, any number in sequence: close one before you use the
	// next. Its error matches ErrSpent when Options.Connections are used up.
	Connect(ctx context.Context) (net.Conn, error)
	// Pause stops the virtual CPUs and Resume continues them. Both are idempotent.
	Pause(ctx context.Context) error
	Resume(ctx context.Context) error
	// Grow sets the guest's memory to total MiB, which may be less than before. It returns the size reached, when the
	// guest has accepted it; the guest's kernel may use the last part some milliseconds later. Shrinking takes seconds.
	// If ctx ends, Grow returns its error and the size reached so far.
	Grow(ctx context.Context, totalMiB int) (int, error)
	// AddCards plugs one more network card for each tap into a running VM with a tap (Network.Tap). The guest finds
	// a card by its hardware address (card.MAC) some 100 ms later. AddCards may be called once, with at most card.Most
	// taps. The caller keeps the taps. If AddCards fails, the VM may have any of the cards.
	AddCards(ctx context.Context, taps []*os.File) error
	// Attach puts disk, a regular file or a block device, into an empty slot of the given mode. The guest sees it as
	// the block device with serial SlotSerial(slot). The caller keeps disk, and opens it for writing only if mode is
	// ReadWrite. The VM's process shares the open file, and its locks, until Detach or until the process ends. The
	// guest still sees the slot's previous size, SlotSize at first; access beyond the disk's end fails. It sees the
	// disk's own size when its driver binds to the device again, or after Resize.
	Attach(ctx context.Context, slot int, disk *os.File, mode DiskMode) error
	// Resize changes the size, in bytes, that the guest sees of the disk in a writable slot. A regular file gets that
	// length.
	Resize(ctx context.Context, slot int, size int64) error
	// Detach empties a slot. It does nothing if the slot is empty.
	Detach(ctx context.Context, slot int) error
	// Save pauses the VM and writes its device state into state. Together with the memory file that the VM was booted
	// with, the state can be cloned. The VM stays paused. Save first waits until all connections to Channel are closed:
	// clones of a VM that is saved with an open connection may not read from the channel.
	Save(ctx context.Context, state *os.File) error
	// Done is closed when the VM has ended. Exit then returns the cause, nil if the guest shut itself down.
	Done() <-chan struct{}
	Exit() error
	// Explain wraps err, a failure that the caller has seen from outside (an agent that does not answer), in an *Error
	// with the VM's output and, if the VM has ended, the cause.
	Explain(op string, err error) error
	// Kill ends the VM and returns when its process has ended. It succeeds if the VM has ended already.
	Kill(ctx context.Context) error
	// Close releases the VM without ending it. Afterwards only Kill, Process and Record may be used, and Done may never
	// be closed.
	Close() error
}

// Timing is the duration of one phase of a VM's start.
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
