package pod

import (
	"os/exec"
	"strings"
	"testing"
)

// Package pod stands on the CRI's interfaces: it works over any runtime only as
// long as it knows nothing of ours. It is linked into programs that start in
// milliseconds, so it has no Kubernetes client either.
func TestImports(t *testing.T) {
	for _, path := range []string{".", "./podapi", "./probe"} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range strings.Fields(string(out)) {
			own, ours := strings.CutPrefix(name, "github.com/bulkhead-project/bulkhead/")
			switch {
			case ours && own != "pod" && own != "pod/podapi" && own != "pod/probe" && own != "api/annotations" && own != "oci" && own != "volume" && own != "volume/atomicdir":
				t.Errorf("%s imports %s: nothing of Bulkhead below the CRI but the annotations' names and OCI's tables", path, name)
			case strings.HasPrefix(name, "k8s.io/client-go"), strings.HasPrefix(name, "k8s.io/cri-client"), strings.HasPrefix(name, "k8s.io/kubernetes"):
				t.Errorf("%s imports %s: no Kubernetes client", path, name)
			}
		}
	}
}
