// Command bulkhead-surrogate stands on the host for a process in a VM. The doors start it.
package main

import (
	"os"

	"github.com/bulkhead-project/bulkhead/door/oci/surrogate"
)

func main() { os.Exit(surrogate.Main(os.Args[1:])) }
