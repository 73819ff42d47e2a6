package qemu_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

func driver(t testing.TB) qemu.Driver {
	t.Helper()
	d, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestVMKinds clones VMs that differ most from the suite's.
func TestVMKinds(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*hypervisor.VMConfig)
	}{
		{"two CPUs, user network", func(m *hypervisor.VMConfig) { m.VCPUs, m.Network = 2, hypervisor.NetworkUser }},
		{"four CPUs, restricted network, no growth, no slots", func(m *hypervisor.VMConfig) {
			m.VCPUs, m.Network, m.MaxMem, m.Slots, m.Scratch = 4, hypervisor.NetworkRestricted, 0, 0, 0
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, m := driver(t), hypervisortest.VMConfig(t)
			c.change(&m)
			s := hypervisortest.Save(t, d, m, func(v hypervisor.VM) { hypervisortest.Ask(t, v, "echo up") })
			if got := hypervisortest.Ask(t, s.Clone(t, d), "cpus"); got != strconv.Itoa(m.VCPUs) {
				t.Errorf("the guest has %s CPUs instead of %d", got, m.VCPUs)
			}
		})
	}
}

// TestDevices checks the list in docs/security.md of the devices that a guest can reach. The guest reads its PCI bus
// and every I/O port.
func TestDevices(t *testing.T) {
	m := hypervisortest.VMConfig(t)
	m.Network = hypervisor.NetworkUser
	s := hypervisortest.Save(t, driver(t), m, func(v hypervisor.VM) { hypervisortest.Ask(t, v, "echo up") })
	v := s.Clone(t, driver(t))
	got := hypervisortest.Ask(t, v, "devices")
	want := []string{
		"0x1af4:0x1041", // virtio-net
		"0x1af4:0x1042", // virtio-blk
		"0x1af4:0x1043", // virtio-serial
		"0x1af4:0x1058", // virtio-mem
		"0x8086:0x2918", // q35: the bridge to the serial port
		"0x8086:0x29c0", // q35: the bridge to the memory
	}
	if diff := cmp.Diff(strings.Join(want, ","), got); diff != "" {
		t.Error(diff)
	}
	if got := hypervisortest.Ask(t, v, "list /sys/bus/serio/devices"); got != "" {
		t.Errorf("a keyboard or mouse: %s", got)
	}
	want = []string{
		"0000-0008", "000a-000f", "0081-0083", "0087-0087", "0089-008b", "008f-008f", "00c0-00df", // DMA controllers
		"0020-0020", "00a0-00a0", "04d0-04d1", // interrupt controllers
		"0040-0043", "0061-0061", // timer and speaker
		"0071-0071",              // clock, and its memory
		"00b2-00b3",              // power management
		"03f8-03ff",              // serial port
		"0510-0511", "0514-051b", // fw_cfg
		"0600-0605", "0608-060b", "0620-0637", "0660-067f", // ACPI and its watchdog
		"0cd8-0ce3", // plugging of processors
		"0cf8-0cff", // PCI configuration
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, strings.Split(hypervisortest.Ask(t, v, "ports"), ",")); diff != "" {
		t.Error(diff)
	}
}

// TestCPU: a guest has no nested virtualisation. No emulated processor has a feature of quick string instructions: with
// one such feature and without the others, Linux jumps past the code that it needs.
func TestCPU(t *testing.T) {
	ctx := hypervisortest.Within(t)
	files := hypervisor.Files{Console: hypervisortest.Console(t)}
	v, err := driver(t).Boot(ctx, hypervisortest.VMConfig(t), files, hypervisortest.Options(t, "cpu"))
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.KillAtEnd(t, v)
	for line := range strings.SplitSeq(hypervisortest.Ask(t, v, "lines /proc/cpuinfo"), "|") {
		flags, found := strings.CutPrefix(line, "flags\t\t:")
		if !found {
			continue
		}
		claims := []string{"vmx", "svm"}
		if hypervisortest.Accel() == hypervisor.TCG {
			claims = append(claims, "erms", "fsrm", "fzrm", "fsrs", "fsrc")
		}
		for _, claim := range claims {
			if slices.Contains(strings.Fields(flags), claim) {
				t.Errorf("the processor claims %s", claim)
			}
		}
		return
	}
	t.Error("the guest shows no flags")
}

func TestConformance(t *testing.T) {
	hypervisortest.Suite{Driver: driver(t), VM: hypervisortest.VMConfig(t)}.Run(t)
}
