package shim_test

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports keeps the shim small and its attack surface known.
func TestImports(t *testing.T) {
	banned := map[string]string{
		"k8s.io/":                                      "a Kubernetes library weighs more than the whole shim",
		"sigs.k8s.io/":                                 "a Kubernetes library weighs more than the whole shim",
		"go.podman.io/":                                "images are the engine's",
		"github.com/spf13/":                            "the shim has no command line",
		"golang.org/x/net/trace":                       "html/template: build with -tags grpcnotrace",
		"github.com/containerd/containerd/v2":          "containerd's pkg/shim is not used",
		"github.com/bulkhead-project/bulkhead/cri":     "imports run downwards only",
		"github.com/bulkhead-project/bulkhead/pod":     "imports run downwards only",
		"github.com/bulkhead-project/bulkhead/image":   "imports run downwards only",
		"github.com/bulkhead-project/bulkhead/network": "imports run downwards only",
	}
	out, err := testgo.Command(t.Context(), "list", "-deps", "-tags", "grpcnotrace", "../cmd/bulkhead-shim").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for path := range strings.FieldsSeq(string(out)) {
		for prefix, reason := range banned {
			if strings.HasPrefix(path, prefix) {
				t.Errorf("bulkhead-shim imports %s: %s", path, reason)
			}
		}
	}
}
