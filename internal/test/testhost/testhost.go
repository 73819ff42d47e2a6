// Package testhost runs a package's tests on a host of their own: in new mount, network, pid, ipc, uts and cgroup
// namespaces, with empty directories for container engines. Daemons use their default paths there. All processes of the
// host end with the tests. It needs root.
package testhost

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stage is the variable that states the role of this process: none outside the host, or one of the following.
const stage = "BULKHEAD_TEST_HOST"

const (
	entering = "entering" // in the namespaces; joins the cgroup
	booting  = "booting"  // the host's first process; prepares mounts, starts the tests and reaps
	inside   = "inside"   // the tests
)

// Inside reports whether the tests run on a host of their own. Without root they do not.
func Inside() bool { return os.Getenv(stage) == inside }

// Run runs a package's tests on a host of their own, and returns their exit code. TestMain calls it. For an ordinary user,
// it runs the tests as they are.
func Run(m *testing.M) int {
	var code int
	var err error
	switch os.Getenv(stage) {
	case inside:
		return m.Run()
	case entering:
		err = enter()
	case booting:
		code, err = boot()
	default:
		if os.Geteuid() != 0 {
			return m.Run()
		}
		code, err = start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testhost:", err)
		return 1
	}
	return code
}

// start starts the host's first process, waits for its end and removes the host's cgroups.
func start() (code int, err error) {
	runtime.LockOSThread() // the host dies with the thread that started it, which is the process's first
	name := "bulkhead-host-" + strconv.Itoa(os.Getpid())
	defer func() { err = errors.Join(err, removeGroups(name)) }()
	if err := createGroups(name); err != nil {
		return 0, err
	}
	cmd := again(entering)
	cmd.Env = append(cmd.Env, groupName+"="+name)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig:  syscall.SIGKILL,
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
	}
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return 0, fmt.Errorf("start a host: %w", err)
	}
	if code = cmd.ProcessState.ExitCode(); code < 0 {
		return 0, fmt.Errorf("the host: %v", cmd.ProcessState)
	}
	return code, nil
}

// again returns a command that runs this program with the same arguments, as another stage.
func again(role string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), stage+"="+role)
	return cmd
}

// enter moves the process into the host's cgroup and makes that the root of a cgroup namespace. Then it runs the program
// again as the same process, because a namespace belongs to a thread.
func enter() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := joinGroups(os.Getenv(groupName), ""); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("create a cgroup namespace: %w", err)
	}
	// A group with processes cannot give controllers to its children in version 2.
	if err := joinGroups(os.Getenv(groupName), leaf); err != nil {
		return err
	}
	cmd := again(booting)
	return fmt.Errorf("run again: %w", syscall.Exec(cmd.Path, cmd.Args, cmd.Environ()))
}

// boot prepares the host, runs the tests and reaps orphans until the tests end.
func boot() (code int, err error) {
	if err := prepare(); err != nil {
		return 0, err
	}
	cmd := again(inside)
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start the tests: %w", err)
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("wait for the tests: %w", err)
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == cmd.Process.Pid:
			return 0, fmt.Errorf("the tests: %v", status.Signal())
		}
	}
}
