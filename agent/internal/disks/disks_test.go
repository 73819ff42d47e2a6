package disks

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// TestSerials checks that the guest's names of slots equal the host's; the agent does not import the host's packages.
func TestSerials(t *testing.T) {
	t.Parallel()
	for slot := range hypervisor.MaxSlots {
		if serial(slot) != hypervisor.SlotSerial(slot) {
			t.Errorf("slot %d is %q here and %q there", slot, serial(slot), hypervisor.SlotSerial(slot))
		}
	}
}
