package cri

import (
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports: the door uses the engine, and opens none of the engine's resources itself. It may use the streams that the
// engine returns.
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
		if own == "shim/stream" {
			continue
		}
		if ours && (slices.Contains([]string{"guest", "hypervisor", "network", "sandbox", "shim", "agent"}, top) || own == "engine/store") {
			t.Errorf("the door imports %s, which only the engine may use", own)
		}
	}
}
