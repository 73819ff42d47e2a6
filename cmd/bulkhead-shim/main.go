// Without these settings the runtime keeps files of the cgroup open. A compromised process could open them for
// writing.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command bulkhead-shim owns one pod's VM on the host. Engines start it; do not run it by hand.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/bulkhead-project/bulkhead/internal/oomscore"
	"github.com/bulkhead-project/bulkhead/shim/process"
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
	_ = oomscore.Unprotect(os.Getpid()) // a pod can start even if it stays protected
	if err := process.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-shim:", err)
		os.Exit(1)
	}
}
