package image

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports: package image knows nothing of the VMs that use its disks, and the engine reads no image's bytes itself.
func TestImports(t *testing.T) {
	const own = "github.com/bulkhead-project/bulkhead/"
	for pkg, banned := range map[string][]string{
		"./...": {"hypervisor", "sandbox", "agent", "engine", "cri", "pod", "door", "network"},
		".":     {"image/layer", "image/erofs", "image/worker"},
	} {
		out, err := testgo.Command(t.Context(), "list", "-deps", pkg).Output()
		if err != nil {
			t.Fatal(err)
		}
		for path := range strings.Lines(string(out)) {
			for _, prefix := range banned {
				if name := strings.TrimSpace(path); name == own+prefix || strings.HasPrefix(name, own+prefix+"/") {
					t.Errorf("%s imports %s", pkg, name)
				}
			}
		}
	}
}
