package image

import (
	"os/exec"
	"strings"
	"testing"
)

// Images know nothing of the machines that use their disks.
func TestImports(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	const own = "github.com/bulkhead-project/bulkhead/"
	for path := range strings.Lines(string(out)) {
		for _, banned := range []string{"hypervisor", "sandbox", "agent", "engine", "cri", "pod", "supervisor", "network"} {
			if name := strings.TrimSpace(path); name == own+banned || strings.HasPrefix(name, own+banned+"/") {
				t.Errorf("imports %s: images lie below what runs them", name)
			}
		}
	}
}
