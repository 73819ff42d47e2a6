// Package alone gives a program a network of its own: network and mounts, in which the
// loopback is up and nobody holds a network namespace. It needs root.
package alone

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside tells the program, and what it starts of itself, that it is in its own network.
const inside = "BULKHEAD_ALONE"

// held is where network namespaces are held.
const held = "/run/netns"

// Enter runs the program again, as the same process in a network of its own, and returns
// there. It is called before anything else is begun. The error says why there is none.
func Enter() error {
	if os.Getenv(inside) != "" {
		return nil
	}
	runtime.LockOSThread() // which becomes the process
	defer runtime.UnlockOSThread()
	if err := separate(); err != nil {
		return fmt.Errorf("create a network of its own: %w", err)
	}
	err := syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), inside+"=1"))
	return fmt.Errorf("run again in a network of its own: %w", err)
}

func separate() error {
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := os.MkdirAll(held, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make the mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", held, "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount %s: %w", held, err)
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("bring the loopback up: %w: %s", err, out)
	}
	return nil
}
