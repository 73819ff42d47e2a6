package qemu_test

import (
	"strconv"
	"testing"

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

func TestConformance(t *testing.T) {
	hypervisortest.Suite{Driver: driver(t), Machine: hypervisortest.Machine(t)}.Run(t)
}
