// Command stay confines itself like bulkhead-convert, writes its process id to the file that it inherits, and never
// ends, even if its pipes are closed.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/bulkhead-project/bulkhead/image/worker"
)

func main() {
	if err := worker.Confine(1 << 20); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.NewFile(3, "disk"), os.Getpid())
	for {
		time.Sleep(time.Hour)
	}
}
