package testnet

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside tells the second process of Alone that it is that.
const inside = "BULKHEAD_TEST_ALONE"

// Alone runs a package's tests in a process with network and mounts of its own, in which
// the loopback is up and nobody holds a network namespace, and returns their exit code.
// TestMain calls it.
func Alone(m *testing.M) int {
	if os.Getenv(inside) != "" {
		if err := settle(); err != nil {
			fmt.Fprintln(os.Stderr, "a network of the tests' own:", err)
			return 1
		}
		return m.Run()
	}
	runtime.LockOSThread() // of which the end ends the other process
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return max(1, exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "a network of the tests' own:", err)
		return 1
	}
	return 0
}

func settle() error {
	const held = "/run/netns"
	if err := os.MkdirAll(held, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", held, "tmpfs", 0, ""); err != nil {
		return err
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
