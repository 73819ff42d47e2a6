package oci_test

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports: the shim and the agent may import this package.
func TestImports(t *testing.T) {
	out, err := testgo.Command(t.Context(), "list", "-deps", ".").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	banned := map[string]string{
		"k8s.io/":                               "the CRI and Kubernetes are translated by cri/spec",
		"google.golang.org/":                    "neither grpc nor protobuf: the agent has no room for them",
		"net/http":                              "nothing is fetched",
		"os/exec":                               "nothing is run",
		"github.com/bulkhead-project/bulkhead/": "it stands on nothing of ours",
	}
	for path := range strings.FieldsSeq(string(out)) {
		for prefix, reason := range banned {
			if strings.HasPrefix(path, prefix) && path != "github.com/bulkhead-project/bulkhead/oci" {
				t.Errorf("oci imports %s: %s", path, reason)
			}
		}
	}
}
