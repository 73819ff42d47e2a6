package confine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// NoCore allows this process and those that it starts no core dumps: they would leave a pod's memory on the host.
func NoCore() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("disable core dumps: %w", err)
	}
	return nil
}
