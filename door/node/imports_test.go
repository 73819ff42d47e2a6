package node

import (
	"slices"
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

const module = "github.com/bulkhead-project/bulkhead/"

// below lists, for each package of the door, the other packages of the door that it may import.
var below = map[string]string{
	"": "admission api auth bounds certs claims conns csi events eviction host images local manifests mirrors object objects pods " +
		"runner preemption series shutdown stats status usage",
	"admission": "pods",
	"api":       "",
	"auth":      "",
	"bounds":    "",
	"certs":     "bounds",
	"claims":    "",
	"config":    "",
	"conns":     "",
	"csi":       "claims csi/attach csi/driver csi/mounts csi/nodeinfo csi/plugins",

	"csi/attach":   "",
	"csi/driver":   "csi/rpc",
	"csi/mounts":   "claims csi/driver tokens usage",
	"csi/nodeinfo": "csi/driver",
	"csi/plugins":  "csi/rpc",
	"csi/rpc":      "",

	"endpoint":   "runner",
	"events":     "",
	"eviction":   "host pods",
	"host":       "",
	"images":     "host",
	"local":      "runner usage",
	"manifests":  "pods",
	"mirrors":    "pods",
	"object":     "host",
	"objects":    "tokens",
	"pods":       "",
	"preemption": "eviction",
	"runner":     "pods usage",
	"series":     "usage",
	"shutdown":   "",
	"stats":      "host usage",
	"status":     "",
	"tokens":     "",
	"usage":      "",
}

// TestImports checks that a package imports only the packages listed for it. Only local, which runs pods by an engine,
// may import the engine. The flags must not import an API of Kubernetes.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := testgo.Command(t.Context(), "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		words := strings.Fields(line)
		name := strings.TrimPrefix(strings.TrimPrefix(words[0], module+"door/node"), "/")
		may, known := below[name]
		if !known {
			t.Errorf("%s is missing from the map of packages in this test", words[0])
		}
		for _, one := range words[1:] {
			if other, is := strings.CutPrefix(one, module+"door/node/"); is && !slices.Contains(strings.Fields(may), other) {
				t.Errorf("%q must not import %s", name, other)
			}
			if strings.HasPrefix(one, module+"engine") && name != "local" && name != "" {
				t.Errorf("%q imports %s, which only local may import", name, one)
			}
			if (strings.HasPrefix(one, "k8s.io/client-go") || strings.HasPrefix(one, "k8s.io/api/")) && name == "config" {
				t.Errorf("config imports %s: the bulkhead command would become larger", one)
			}
		}
	}
}
