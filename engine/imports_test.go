package engine

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// The engine knows no client's protocol: each door translates its own.
func TestImports(t *testing.T) {
	out, err := testgo.Command(t.Context(), "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		own, ours := strings.CutPrefix(name, "github.com/bulkhead-project/bulkhead/")
		top, _, _ := strings.Cut(own, "/")
		switch {
		case strings.HasPrefix(name, "k8s.io/"), strings.HasPrefix(name, "sigs.k8s.io/"):
			t.Errorf("the engine imports %s, but must not use types of the CRI or Kubernetes", name)
		case ours && (top == "cri" || top == "pod" || top == "door" || top == "cli" || top == "volume"):
			if own == "volume/atomicdir" {
				continue // the format of volumes of files on a disk
			}
			t.Errorf("the engine imports %s, which is a higher layer", name)
		}
	}
}
