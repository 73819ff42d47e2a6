package hypervisor_test

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports: a driver moves bytes between a VM's port and a socket. Only higher packages know their meaning.
func TestImports(t *testing.T) {
	out, err := testgo.Command(t.Context(), "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	const house = "github.com/bulkhead-project/bulkhead/"
	for path := range strings.Lines(string(out)) {
		own, ours := strings.CutPrefix(strings.TrimSpace(path), house)
		if ours && !strings.HasPrefix(own, "hypervisor") && !strings.HasPrefix(own, "internal/") && own != "api/slot" && own != "api/card" {
			t.Errorf("imports %s: a hypervisor must not import channel, agent or a package above it", own)
		}
	}
}
