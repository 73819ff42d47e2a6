package run

import (
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// The door uses the engine and does not bypass it: it must not open what the engine opens. It uses the engine's
// image store through the types of its package.
func TestImports(t *testing.T) {
	t.Parallel()
	const module = "github.com/bulkhead-project/bulkhead/"
	out, err := testgo.Command(t.Context(), "list", "-f", `{{join .Imports "\n"}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		own, ours := strings.CutPrefix(name, module)
		top, _, _ := strings.Cut(own, "/")
		if ours && (slices.Contains([]string{"guest", "hypervisor", "network", "sandbox", "shim", "agent"}, top) || own == "engine/store") {
			t.Errorf("the door imports %s, which is the engine's to use", own)
		}
	}
}
