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
