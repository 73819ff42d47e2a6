// Without these the runtime keeps files of the cgroup open, which a process that was taken over could open for writing.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command bulkhead-shim is one pod's process on the host. Engines start it; it
// has no use on a command line.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/bulkhead-project/bulkhead/internal/oomscore"
	"github.com/bulkhead-project/bulkhead/shim/process"
)

// One of these runs per pod, mostly idle, with a heap of about a megabyte:
// memory is dearer than the collector's time.
const (
	gcPercent   = 30
	memoryLimit = 32 << 20
)

func main() {
	debug.SetGCPercent(gcPercent)
	debug.SetMemoryLimit(memoryLimit)
	debug.SetTraceback("single")
	_ = oomscore.Unprotect(os.Getpid()) // a pod is started also where it stays protected
	if err := process.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-shim:", err)
		os.Exit(1)
	}
}
