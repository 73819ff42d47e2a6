// Without these settings the Go runtime keeps files of the process's cgroup open. A compromised process could reopen
// them for writing, and so change its own limits.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command bulkhead-convert converts a container image: it reads the layers and writes the image's disk. An engine
// starts one process for each image. The process confines itself before it reads (package image/worker).
package main

import (
	"fmt"
	"os"

	"github.com/bulkhead-project/bulkhead/image/worker"
	"github.com/bulkhead-project/bulkhead/internal/oomscore"
)

func main() {
	_ = oomscore.Unprotect(os.Getpid()) // on an error the kernel spares this process as long as the engine when memory runs out
	if err := worker.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-convert:", err)
		os.Exit(1)
	}
}
