package containerd

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports keeps the front small: each pod has such a process.
func TestImports(t *testing.T) {
	t.Parallel()
	banned := map[string]string{
		"k8s.io/":                             "a Kubernetes library weighs more than the whole front",
		"sigs.k8s.io/":                        "a Kubernetes library weighs more than the whole front",
		"go.podman.io/":                       "images are containerd's",
		"github.com/spf13/":                   "containerd's flags are few",
		"golang.org/x/net/trace":              "html/template: build with -tags grpcnotrace",
		"github.com/containerd/containerd/v2": "containerd's pkg/shim is not used, because none of its versions serves all callers",
		"github.com/containerd/containerd/api/services/e": "the events of gRPC clients; the front publishes by ttrpc",
		"github.com/bulkhead-project/bulkhead/engine":     "a door in its own process asks the engine by api/engine/v1",
		"github.com/bulkhead-project/bulkhead/cri":        "a door in its own process asks the engine by api/engine/v1",
		"github.com/bulkhead-project/bulkhead/pod":        "a door in its own process asks the engine by api/engine/v1",
		"github.com/bulkhead-project/bulkhead/image":      "images are containerd's",
	}
	out, err := testgo.Command(t.Context(), "list", "-deps", "-tags", "grpcnotrace", "../../cmd/containerd-shim-bulkhead-v2").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for path := range strings.FieldsSeq(string(out)) {
		for prefix, reason := range banned {
			if strings.HasPrefix(path, prefix) {
				t.Errorf("the front imports %s: %s", path, reason)
			}
		}
	}
}
