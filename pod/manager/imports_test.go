package manager

import (
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// may are the packages of Bulkhead that a manager may import, beside package pod and those below it. None depends on a
// runtime, a door, or a command.
var may = []string{
	"api/annotations", "api/container/v1", "api/runtime/v1", "oci", "volume", "volume/atomicdir", "volume/layout",
	"internal/atomicfile", "internal/broadcast", "internal/dirs", "internal/dirwatch", "internal/errclass", "internal/fault",
	"internal/flock", "internal/place", "internal/procid", "internal/ulimit", "internal/userns",
}

// TestImports: a manager works over any runtime and behind any door, because it imports none.
func TestImports(t *testing.T) {
	t.Parallel()
	const module = "github.com/bulkhead-project/bulkhead/"
	for _, path := range []string{".", "./events", "./logs"} {
		out, err := testgo.Command(t.Context(), "list", "-deps", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(string(out)) {
			own, ours := strings.CutPrefix(name, module)
			switch {
			case ours && own != "pod" && !strings.HasPrefix(own, "pod/") && !slices.Contains(may, own):
				t.Errorf("%s imports %s", path, own)
			case strings.HasPrefix(name, "k8s.io/client-go"), strings.HasPrefix(name, "k8s.io/cri-client"):
				t.Errorf("%s imports %s", path, name)
			}
		}
		if out, err = testgo.Command(t.Context(), "list", "-f", "{{.Imports}}", path).Output(); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(out), "net/http") {
			t.Errorf("%s speaks HTTP, which is a door's", path)
		}
	}
}
