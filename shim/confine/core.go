package confine

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// NoCore disables core dumps of this process and its children. They would leave a pod's memory on the host.
func NoCore() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("disable core dumps: %w", err)
	}
	return nil
}
