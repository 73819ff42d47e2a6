// Without these settings the runtime keeps files of the cgroup open.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command containerd-shim-bulkhead-v2 runs containers of containerd in VMs, as its runtime io.containerd.bulkhead.v2.
// Containerd starts it; do not run it by hand.
package main

import (
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/bulkhead-project/bulkhead/door/containerd"
	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/door/containerd/front"
	"github.com/bulkhead-project/bulkhead/door/containerd/vms"
	"github.com/bulkhead-project/bulkhead/door/oci"
)

// Each pod has such a process, mostly idle, with a heap of about a megabyte. Memory costs more than the collector's
// time.
const (
	gcPercent   = 30
	memoryLimit = 32 << 20
)

func main() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	debug.SetTraceback("single")
	os.Exit(front.Program{
		Open: func(inv bootstrap.Invocation, log *slog.Logger) (containerd.Runtime, error) {
			return vms.Open(inv.Address, inv.Namespace, log)
		},
		Features: oci.Features,
		Args:     os.Args[1:],
		Stdin:    os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}.Run())
}
