package command

import (
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// keepInherited keeps the descriptors that the caller left open from the programs that this one starts. An engine or
// surrogate outlives the command. If it held conmon's pipes, podman would wait for their end.
func keepInherited() error {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("list the inherited descriptors: %w", err)
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
