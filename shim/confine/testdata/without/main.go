// Command without drops the engine's capabilities and prints those that its threads and a child have.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bulkhead-project/bulkhead/shim/confine"
)

func main() {
	if err := confine.Without(confine.NeverUsed); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	threads, err := filepath.Glob("/proc/self/task/*/status")
	for _, path := range threads {
		var status []byte
		if status, err = os.ReadFile(path); err != nil {
			break
		}
		fmt.Print(string(status))
	}
	if err == nil {
		var status []byte
		status, err = exec.Command("cat", "/proc/self/status").Output()
		fmt.Print(string(status))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, strings.TrimSpace(err.Error()))
		os.Exit(1)
	}
}
