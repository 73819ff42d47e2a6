// Without these the runtime keeps files of the cgroup open, which a process that was taken over could open for writing.
//
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command bulkhead-convert reads one image for an engine and makes its disk.
// Engines start it; it has no use on a command line.
package main

import (
	"fmt"
	"os"

	"github.com/bulkhead-project/bulkhead/image/worker"
	"github.com/bulkhead-project/bulkhead/internal/oomscore"
)

func main() {
	_ = oomscore.Unprotect(os.Getpid()) // an image is read also where it stays protected
	if err := worker.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-convert:", err)
		os.Exit(1)
	}
}
