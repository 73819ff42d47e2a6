// Without these settings the runtime keeps files of the cgroup open. A compromised process could open them for
// writing.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command bulkhead-convert reads an image for an engine and creates its disk. Engines start it; do not run it by
// hand.
package main

import (
	"fmt"
	"os"

	"github.com/bulkhead-project/bulkhead/image/worker"
	"github.com/bulkhead-project/bulkhead/internal/oomscore"
)

func main() {
	_ = oomscore.Unprotect(os.Getpid()) // it can read an image even if it stays protected
	if err := worker.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-convert:", err)
		os.Exit(1)
	}
}
