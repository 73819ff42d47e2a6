package remote

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports: a door in its own process is small. The client imports neither the engine, nor the CRI, nor Kubernetes.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := testgo.Command(t.Context(), "list", "-deps", "../../api/engine/v1", "./client").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		own, ours := strings.CutPrefix(name, "github.com/bulkhead-project/bulkhead/")
		top, _, _ := strings.Cut(own, "/")
		if strings.HasPrefix(name, "k8s.io/") || strings.HasPrefix(name, "sigs.k8s.io/") || strings.HasPrefix(name, "go.podman.io/") ||
			ours && (top == "engine" || top == "cri" || top == "pod" || top == "image" || top == "network") {
			t.Errorf("a client imports %s", name)
		}
	}
}
