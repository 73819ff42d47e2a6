package networks

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
)

// Each kind of network has a device, and a VM tells which it was asked for with.
func TestNetworkDevices(t *testing.T) {
	for kind, want := range map[network.Kind]network.Kind{
		network.KindNone: network.KindNone, network.KindUser: network.KindUser,
		network.KindHostLoopback: network.KindHostLoopback, network.KindRestricted: network.KindUser,
	} {
		m := hypervisor.Machine{
			Kernel: "k", Initrd: "i", Accel: hypervisor.TCG, VCPUs: 1, Memory: 256, MaxMem: 256, Network: DeviceOf(kind),
		}
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if got := asked(KindOf(m)); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
}
