package procs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// keeper is the environment variable with the keeper's process id.
const keeper = "BULKHEAD_BENCH_KEEPER"

// Keep runs this program again below a keeper, which becomes the parent of all orphans below it. Daemons then stay
// visible, and are reaped as soon as they die. The kept program calls run; both return its exit code.
func Keep(run func() int) (code int, err error) {
	if os.Getenv(keeper) != "" {
		if Root() == os.Getpid() {
			return 1, errors.New("the keeper of this process has gone")
		}
		return run(), nil
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 1, fmt.Errorf("become the subreaper of orphans: %w", err)
	}
	// Ctrl-C reaches both processes. A signal to the keeper alone is passed on.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), keeper+"="+strconv.Itoa(os.Getpid()))
	if err := cmd.Start(); err != nil {
		return 1, fmt.Errorf("run below a keeper: %w", err)
	}
	go func() {
		for s := range signals {
			if s != os.Interrupt {
				_ = cmd.Process.Signal(s) // it may have ended
			}
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return 1, fmt.Errorf("wait for the kept process: %w", err)
		}
		if pid == cmd.Process.Pid && (status.Exited() || status.Signaled()) {
			if status.Signaled() {
				return 128 + int(status.Signal()), nil
			}
			return status.ExitStatus(), nil
		}
	}
}

// Root is the process above everything that this process started: its keeper while it lives, otherwise this
// process.
func Root() int {
	if pid, err := strconv.Atoi(os.Getenv(keeper)); err == nil && pid > 1 && pid == os.Getppid() {
		return pid
	}
	return os.Getpid()
}
