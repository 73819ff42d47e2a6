package qemu

import (
	"fmt"
	"strconv"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// startMode says how QEMU starts: a clone waits for a saved state instead of booting.
type startMode bool

const (
	boot  startMode = false
	clone startMode = true
)

// translationCache is TCG's cache of translated code in MiB. Without it QEMU lets the cache of each VM grow to 1 GiB. A
// clone that has run its first container has filled 40. A fork has filled 53 then, mostly with its parent's memory. If the
// cache is flushed in the middle of a start, the start takes 2.4 times as long.
const translationCache = 80

// EmulatedCPU is the processor without KVM. It has no nested virtualisation (SVM). It has none of the features of quick
// string instructions (ERMS, FSRM, and FZRM, FSRS and FSRC of leaf 7.1). With them kernel and libraries move one byte
// at a time, and QEMU takes as long for one byte as for eight. They go together: Linux takes FSRM to imply ERMS, and
// hangs if ERMS is missing. QEMU 7.2 does not know the names of the last three, but can hide their leaf.
const EmulatedCPU = "max,svm=off,erms=off,fsrm=off,level-func7=0"

// machineType is the board, without the parts that QEMU 7.2 to 10 can omit and a guest does not need. The timer (pit)
// stays: without it an emulated guest measures half of its processor's speed. mem-merge=off keeps guests' memory from
// KSM.
const machineType = "q35,memory-backend=mem,smm=off,vmport=off,hpet=off,sata=off,smbus=off,usb=off,i8042=off," +
	"dump-guest-core=off,mem-merge=off"

// fds are the descriptor numbers that the process inherits; 0 means none.
type fds struct {
	qmp, monitor, channel, share, console int
	memory, kernel, initrd, tap           int
}

// processName returns the argument that identifies a VM's process.
func processName(name string) string { return "bulkhead-" + name }

// arguments returns the command line. Everything but the use of descriptors depends on m alone, so that a template and
// its clones agree.
func arguments(m hypervisor.VMConfig, o hypervisor.Options, fd fds, mode startMode) []string {
	a := args{
		"-name", processName(o.Name),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
		"-machine", machineType,
		"-smp", strconv.Itoa(m.CanHave()),
	}
	a.accel(m)
	a.socket("qmp", fd.qmp)
	a.add("-mon", "chardev=qmp,mode=control")
	a.socket("monitor", fd.monitor)
	a.add("-mon", "chardev=monitor,mode=control")
	a.socket("console", fd.console)
	a.add("-device", "isa-serial,chardev=console")
	a.memory(m, fd.memory, mode)
	a.add("-device", "virtio-serial-pci,disable-legacy=on,max_ports=3")
	a.socket(channelChardev, fd.channel)
	a.add("-device", "virtserialport,nr=1,chardev="+channelChardev+",name="+hypervisor.ChannelPort)
	a.socket(shareChardev, fd.share)
	a.add("-device", "virtserialport,nr=2,chardev="+shareChardev+",name="+hypervisor.SharePort)
	a.slots(m)
	a.network(m, fd.tap)
	if mode == clone {
		// The kernel lies in the saved memory: loading it again would cost time and, until exit, memory.
		return append(a, "-incoming", "defer")
	}
	// The other CPUs exist, offline. To plug one in takes a guest half a second, to bring one online a third of that.
	cmdline := fmt.Sprintf("%s maxcpus=%d console=ttyS0 panic=-1", m.Cmdline, m.VCPUs)
	a.add("-kernel", fdPath(fd.kernel), "-append", cmdline)
	if fd.initrd != 0 {
		a.add("-initrd", fdPath(fd.initrd))
	}
	return a
}

// The ids of the sockets behind the guest's ports.
const (
	channelChardev = "channel"
	shareChardev   = "share"
)

type args []string

func (a *args) add(arg ...string) { *a = append(*a, arg...) }

func (a *args) addf(option, format string, v ...any) { a.add(option, fmt.Sprintf(format, v...)) }

func (a *args) accel(m hypervisor.VMConfig) {
	if m.Accel == hypervisor.KVM {
		// A guest without nested virtualisation cannot reach the code for nested VMs in the host's kernel.
		a.add("-accel", "kvm", "-cpu", "host,vmx=off,svm=off")
		return
	}
	a.addf("-accel", "tcg,thread=multi,tb-size=%d", translationCache)
	a.add("-cpu", EmulatedCPU)
}

func (a *args) socket(id string, fd int) {
	a.addf("-chardev", "socket,id=%s,fd=%d,server=on,wait=off", id, fd)
}

func (a *args) memory(m hypervisor.VMConfig, fd int, mode startMode) {
	switch fd {
	case 0:
		a.addf("-object", "memory-backend-ram,id=mem,size=%dM", m.Memory)
	default:
		share := "on"
		if mode == clone {
			share = "off"
		}
		a.addf("-object", "memory-backend-file,id=mem,size=%dM,mem-path=%s,share=%s", m.Memory, fdPath(fd), share)
	}
	more := growable(m)
	if more == 0 {
		a.addf("-m", "size=%dM", m.Memory)
		return
	}
	a.addf("-m", "size=%dM,maxmem=%dM", m.Memory, m.Memory+more)
	a.addf("-object", "memory-backend-ram,id=more,size=%dM,reserve=off", more)
	a.add("-device", "virtio-mem-pci,id="+memoryDevice+",disable-legacy=on,memdev=more,requested-size=0")
}

// growable returns the size of the virtio-mem device in MiB.
func growable(m hypervisor.VMConfig) int { return max(m.MaxMem-m.Memory, 0) }

func (a *args) slots(m hypervisor.VMConfig) {
	for i := range m.Slots {
		readOnly := "on"
		if m.SlotMode(i) == hypervisor.ReadWrite {
			readOnly = "off"
		}
		// An empty slot has no file at all: guests that write to a shared one could talk to each other and fill the
		// host's disk.
		a.addf("-blockdev", "driver=null-co,node-name=%s,size=%d,read-zeroes=on,read-only=%s", emptyNode(i), int64(hypervisor.SlotSize), readOnly)
		a.addf("-blockdev", "driver=raw,node-name=%s,file=%s,read-only=%s", slotNode(i), emptyNode(i), readOnly)
		a.addf("-device", "virtio-blk-pci,disable-legacy=on,drive=%s,serial=%s", slotNode(i), hypervisor.SlotSerial(i))
	}
}

func (a *args) network(m hypervisor.VMConfig, tap int) {
	if !m.Network.Tap() {
		a.add("-global", "ICH9-LPC.acpi-pci-hotplug-with-bridge-support=off") // no device is ever plugged in
	}
	switch m.Network {
	case hypervisor.NetworkNone:
		return
	case hypervisor.NetworkTap, hypervisor.NetworkAdopted:
		a.addf("-netdev", "tap,id=net,fd=%d,vhost=off", tap)
	case hypervisor.NetworkRestricted:
		a.add("-netdev", "user,id=net,restrict=on")
	default:
		a.add("-netdev", "user,id=net,restrict=off")
	}
	a.add("-device", "virtio-net-pci,disable-legacy=on,netdev=net,romfile=")
	if m.Network.Tap() {
		a.add("-device", "pcie-root-port,id="+cardPort)
	}
}

func fdPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
