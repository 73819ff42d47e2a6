package vms

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// TestVMMemory checks the memory of a pod's VM. It boots with the class below the pod's size and can grow
// to 4 GiB, or to the host's memory for a larger pod. A small host bounds both.
func TestVMMemory(t *testing.T) {
	const step = sizing.MemoryAlign
	for _, tc := range []struct{ pod, common, host, boot, most int }{
		{pod: 512, common: 512, host: 64 << 10, boot: 512, most: 4096},
		{pod: 511, common: 512, host: 64 << 10, boot: 256, most: 4096},
		{pod: 256, common: 512, host: 64 << 10, boot: 256, most: 4096},
		{pod: 64, common: 512, host: 64 << 10, boot: 256, most: 4096},
		{pod: 4096, common: 512, host: 64 << 10, boot: 512, most: 4096},
		{pod: 4097, common: 512, host: 64 << 10, boot: 512, most: 64 << 10},
		{pod: 8192, common: 512, host: 10*step + step - 1, boot: 512, most: max(512, 10*step)},
		{pod: 512, common: 512, host: 8*step + 1, boot: 512, most: max(512, 8*step)},
		{pod: 512, common: 512, host: 1, boot: 512, most: 512},
		{pod: 2048, common: 2048, host: 64 << 10, boot: 2048, most: 4096},
		{pod: 3072, common: 2048, host: 64 << 10, boot: 2048, most: 4096},
		{pod: 2047, common: 2048, host: 64 << 10, boot: 512, most: 4096},
		{pod: 511, common: 2048, host: 64 << 10, boot: 256, most: 4096},
		{pod: 256, common: 256, host: 64 << 10, boot: 256, most: 4096},
	} {
		m := Of(guest.Bundle{}, sizing.Host{MemoryMiB: tc.host}, 1, tc.pod, tc.common, hypervisor.TCG, hypervisor.NetworkNone)
		if m.Memory != tc.boot || m.MaxMem != tc.most {
			t.Errorf("a pod of %d MiB on a host of %d boots with %d and grows to %d", tc.pod, tc.host, m.Memory, m.MaxMem)
		}
	}
}
