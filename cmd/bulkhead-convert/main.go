// Command bulkhead-convert reads one image for an engine and makes its disk.
// Engines start it; it has no use on a command line.
package main

import (
	"fmt"
	"os"

	"github.com/bulkhead-project/bulkhead/image/worker"
)

func main() {
	if err := worker.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "bulkhead-convert:", err)
		os.Exit(1)
	}
}
