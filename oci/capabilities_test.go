package oci

import (
	"slices"
	"testing"
)

// The library's list grows with Linux; the guest's kernel (6.1) and its runtime do not know newer capabilities.
func TestAllCapabilitiesAreTheGuests(t *testing.T) {
	all := AllCapabilities()
	if len(all) != 41 || all[0] != "CAP_CHOWN" || all[40] != "CAP_CHECKPOINT_RESTORE" {
		t.Errorf("%d capabilities: %v", len(all), all)
	}
	for _, name := range DefaultCapabilities() {
		if !slices.Contains(all, name) {
			t.Errorf("%s is not one of the kernel's", name)
		}
	}
	if !slices.IsSorted(DefaultCapabilities()) {
		t.Error("the defaults are not sorted")
	}
}
