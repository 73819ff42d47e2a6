// Bulkhead-agent is process 1 of a pod's VM.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/agent"
	"github.com/bulkhead-project/bulkhead/internal/version"
)

func main() {
	switch os.Args[0] {
	case agent.HolderName:
		fmt.Fprintln(os.Stderr, agent.Hold())
		os.Exit(1)
	case agent.ForwarderName:
		agent.Log("forward: %v", agent.Forward())
		os.Exit(1)
	}
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "bulkhead-agent is the first process of a virtual machine, and does nothing elsewhere")
		os.Exit(2)
	}
	agent.Log("%v", agent.Main(version.Version))
	// The VM is useless without its agent: power off, so that the host notices.
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}
