package agent_test

import (
	"strings"
	"testing"

	"github.com/bulkhead-project/bulkhead/internal/testgo"
)

// TestImports keeps the agent small: it is in every VM's memory, and the emulator translates its code at each start.
func TestImports(t *testing.T) {
	t.Parallel()
	out, err := testgo.Command(t.Context(), "list", "-deps", "github.com/bulkhead-project/bulkhead/cmd/bulkhead-agent").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	banned := map[string]string{
		"k8s.io/":                    "the guest knows nothing of Kubernetes",
		"google.golang.org/protobuf": "the protocol is JSON, which weighs a tenth",
		"net/http":                   "nothing speaks HTTP to the agent",
		"github.com/spf13/":          "there is no command line",
		"github.com/containerd/":     "containers are crun's",
		"log/slog":                   "there is one line to log in a guest's life",
		"os/exec":                    "package reaper alone waits for children",
		"math/rand":                  "clones share its state; only the kernel's random numbers are renewed",
		"crypto/":                    "the channel needs none, and its self-tests cost time at the start",
		"os/user":                    "users are the image's, not the guest's",
		"github.com/bulkhead-project/bulkhead/hypervisor": "the guest knows nothing of the host",
		"github.com/bulkhead-project/bulkhead/sandbox":    "the guest knows nothing of the host",
	}
	for _, pkg := range strings.Fields(string(out)) {
		for prefix, reason := range banned {
			if strings.HasPrefix(pkg, prefix) {
				t.Errorf("the agent imports %s: %s", pkg, reason)
			}
		}
	}
}
