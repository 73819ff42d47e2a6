package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
)

// SignalExit returns the exit code of a command that a signal ended.
func SignalExit(ctx context.Context) error {
	if s := (tty.SignalError{}); errors.As(context.Cause(ctx), &s) {
		return ExitError(128 + int(s.Signal))
	}
	return ctx.Err()
}

// The numbers of the real-time signals.
const (
	firstRealTime = 34
	maxSignal     = 64
)

// Signal parses a flag's value: HUP, SIGHUP, RTMIN+1 or a number.
func Signal(flag, typed string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(typed); err == nil && n >= 1 && n <= maxSignal {
		return syscall.Signal(n), nil
	}
	name := strings.TrimPrefix(strings.ToUpper(typed), "SIG")
	if n := unix.SignalNum("SIG" + name); n != 0 {
		return n, nil
	}
	for n := firstRealTime; n <= maxSignal; n++ {
		if realTime(n) == "SIG"+name {
			return syscall.Signal(n), nil
		}
	}
	return 0, fmt.Errorf("%s %q: must be the name of a signal, such as HUP, or a number from 1 to %d", flag, typed, maxSignal)
}

// SignalName returns the signal of a flag's value in the form of a Pod: SIGHUP, SIGRTMIN+1.
func SignalName(flag, typed string) (string, error) {
	n, err := Signal(flag, typed)
	if err != nil {
		return "", err
	}
	name := unix.SignalName(n)
	if n >= firstRealTime {
		name = realTime(int(n))
	}
	if name == "" {
		return "", fmt.Errorf("%s %q: the C library reserves this signal; use another one", flag, typed)
	}
	return name, nil
}

// realTime names a real-time signal. The first half counts up from SIGRTMIN, the others count down from SIGRTMAX.
func realTime(n int) string {
	switch up, down := n-firstRealTime, maxSignal-n; {
	case up == 0:
		return "SIGRTMIN"
	case down == 0:
		return "SIGRTMAX"
	case up <= 15:
		return fmt.Sprintf("SIGRTMIN+%d", up)
	default:
		return fmt.Sprintf("SIGRTMAX-%d", down)
	}
}
