package qemu_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/hypervisortest"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu"
)

func driver(t testing.TB) qemu.Driver {
	t.Helper()
	d, err := qemu.New()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestMachineKinds clones what differs most from the suite's machine.
func TestMachineKinds(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*hypervisor.Machine)
	}{
		{"two CPUs, user network", func(m *hypervisor.Machine) { m.VCPUs, m.Network = 2, hypervisor.NetworkUser }},
		{"four CPUs, restricted network, no growth, no slots", func(m *hypervisor.Machine) {
			m.VCPUs, m.Network, m.MaxMem, m.Slots, m.Scratch = 4, hypervisor.NetworkRestricted, 0, 0, 0
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, m := driver(t), hypervisortest.Machine(t)
			c.change(&m)
			s := hypervisortest.Save(t, d, m, func(v hypervisor.VM) { hypervisortest.Ask(t, v, "echo up") })
			if got := hypervisortest.Ask(t, s.Clone(t, d), "cpus"); got != strconv.Itoa(m.VCPUs) {
				t.Errorf("the guest has %s CPUs instead of %d", got, m.VCPUs)
			}
		})
	}
}

// TestDevices: what a guest finds on its bus is all of QEMU that it can talk
// to, but for the serial port and the board's own timers.
func TestDevices(t *testing.T) {
	m := hypervisortest.Machine(t)
	m.Network = hypervisor.NetworkUser
	s := hypervisortest.Save(t, driver(t), m, func(v hypervisor.VM) { hypervisortest.Ask(t, v, "echo up") })
	got := hypervisortest.Ask(t, s.Clone(t, driver(t)), "devices")
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
}

// TestEmulatedCPU: no QEMU's emulated processor claims that it moves bytes quickly. One such claim without
// the others has Linux jump past the code that it needs.
func TestEmulatedCPU(t *testing.T) {
	ctx := hypervisortest.Within(t)
	v, err := driver(t).Boot(ctx, hypervisortest.Machine(t), hypervisor.Files{Console: hypervisortest.Console(t)}, hypervisortest.Options(t, "cpu"))
	if err != nil {
		t.Fatal(err)
	}
	hypervisortest.End(t, v)
	for line := range strings.SplitSeq(hypervisortest.Ask(t, v, "lines /proc/cpuinfo"), "|") {
		flags, found := strings.CutPrefix(line, "flags\t\t:")
		if !found {
			continue
		}
		for _, quick := range []string{"erms", "fsrm", "fzrm", "fsrs", "fsrc"} {
			if slices.Contains(strings.Fields(flags), quick) {
				t.Errorf("the processor claims %s", quick)
			}
		}
		return
	}
	t.Error("the guest shows no flags")
}

func TestConformance(t *testing.T) {
	hypervisortest.Suite{Driver: driver(t), Machine: hypervisortest.Machine(t)}.Run(t)
}
