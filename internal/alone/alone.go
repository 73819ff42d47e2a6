// Package alone runs a program in its own network and mount namespaces, with the loopback up and no other network
// namespaces held. It needs root.
package alone

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside is the variable that marks the program, and its children, as running in their own network.
const inside = "BULKHEAD_ALONE"

// held is the directory where network namespaces are held.
const held = "/run/netns"

// Enter runs the program again, as the same process in its own network, and returns there. It must be called before
// anything else is started. The error has the reason if that fails.
func Enter() error {
	if os.Getenv(inside) != "" {
		return nil
	}
	runtime.LockOSThread() // the thread becomes the process
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
