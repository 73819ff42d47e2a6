// Command shim is the front with containers that are processes of the host, for tests with real versions of containerd.
// The variable FRONTTEST_DIR names its directory.
package main

import (
	"log/slog"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go/features"

	"github.com/bulkhead-project/bulkhead/door/containerd"
	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/door/containerd/front"
	"github.com/bulkhead-project/bulkhead/door/containerd/fronttest"
)

func main() {
	os.Exit(front.Program{
		Open: func(inv bootstrap.Invocation, _ *slog.Logger) (containerd.Runtime, error) {
			return &fronttest.Host{Dir: filepath.Join(os.Getenv("FRONTTEST_DIR"), inv.Namespace)}, nil
		},
		Features: func() *features.Features { return &features.Features{OCIVersionMin: "1.0.0", OCIVersionMax: "1.3.0"} },
		Args:     os.Args[1:],
		Stdin:    os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}.Run())
}
