package sandbox

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports keeps the shim small: it parses bytes from guests.
func TestImports(t *testing.T) {
	out, err := testgo.Command(t.Context(), "list", "-deps", "./...").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	for banned, why := range map[string]string{
		"k8s.io/":                                              "a shim knows no Kubernetes",
		"google.golang.org/protobuf":                           "services over protobuf are package shim's",
		"github.com/containerd/":                               "services are package shim's",
		"github.com/bulkhead-project/bulkhead/cri":             "imports run downwards",
		"github.com/bulkhead-project/bulkhead/shim":            "imports run downwards",
		"github.com/bulkhead-project/bulkhead/pod":             "imports run downwards",
		"github.com/bulkhead-project/bulkhead/hypervisor/qemu": "the caller chooses the driver",
		"net/http": "2 MB and its goroutines",
	} {
		for path := range strings.Lines(string(out)) {
			if strings.HasPrefix(path, banned) {
				t.Errorf("imports %s: %s", strings.TrimSpace(path), why)
			}
		}
	}
}
