package pod

import (
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

const module = "github.com/bulkhead-project/bulkhead/"

// below are the packages of pod, with the others that each may import. All arrows run downwards. allowed applies to all
// of them.
var below = map[string]string{
	"pod": "pod/config pod/images pod/instance pod/launch pod/logs pod/resize pod/watch pod/podstatus pod/podspec pod/probe " +
		"pod/backoff",
	"pod/images":          "pod/config pod/podspec",
	"pod/instance":        "pod/config pod/podspec",
	"pod/launch":          "pod/config pod/instance pod/logs pod/podspec pod/watch",
	"pod/logs":            "pod/config pod/podspec pod/watch",
	"pod/config":          "pod/podspec",
	"pod/podstatus":       "pod/podspec",
	"pod/resize":          "pod/podspec",
	"pod/podapi":          "pod/podspec pod/podapi/fields pod/podapi/jsonnode pod/internal/nearest",
	"pod/podapi/fields":   "",
	"pod/podapi/jsonnode": "",
	"pod/podspec":         "",
	"pod/probe":           "",
	"pod/watch":           "",
	"pod/backoff":         "",
}

// allowed are packages of Bulkhead below the CRI's interfaces that packages of pod may import anyway.
var allowed = []string{
	"api/annotations", "api/container/v1", "api/runtime/v1", "internal/broadcast", "internal/place", "internal/ulimit", "oci",
	"volume", "volume/atomicdir", "volume/layout",
}

// TestImports: package pod uses the CRI's interfaces and no package of a certain runtime, so it works over any runtime.
// It is linked into programs that start in milliseconds, so it has no Kubernetes client.
func TestImports(t *testing.T) {
	for name, others := range below {
		may := append(append(strings.Fields(others), allowed...), name)
		out, err := testgo.Command(t.Context(), "list", "-deps", module+name).Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, dependency := range strings.Fields(string(out)) {
			own, ours := strings.CutPrefix(dependency, module)
			switch {
			case ours && !slices.Contains(may, own):
				t.Errorf("%s imports %s", name, own)
			case strings.HasPrefix(dependency, "k8s.io/client-go"), strings.HasPrefix(dependency, "k8s.io/cri-client"),
				strings.HasPrefix(dependency, "k8s.io/kubernetes"):
				t.Errorf("%s imports %s: no Kubernetes client", name, dependency)
			}
		}
	}
}

// TestEveryPackageHasItsPlace: every package below pod is in below, except tools of tests and generators, and packages
// above pod.
func TestEveryPackageHasItsPlace(t *testing.T) {
	out, err := testgo.Command(t.Context(), "list", module+"pod/...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range strings.Fields(string(out)) {
		own := strings.TrimPrefix(name, module)
		_, known := below[own]
		if !known && !strings.HasPrefix(own, "pod/internal/") && path.Base(own) != "gen" && !strings.HasPrefix(own, "pod/manager") {
			t.Errorf("%s has no place among the packages of pod", own)
		}
	}
}
