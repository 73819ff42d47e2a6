// Command bulkhead-oci is an OCI runtime for podman, docker and containerd. It runs containers in VMs.
package main

import (
	"os"

	"github.com/bulkhead-project/bulkhead/door/oci/command"
)

func main() { os.Exit(command.Main(os.Args[1:], os.Stdout, os.Stderr)) }
