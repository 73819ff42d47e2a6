package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
)

// Executor runs a command in a container, like the CRI's RuntimeService. A non-zero exit code is an error with the
// methods of k8s.io/utils/exec.ExitError. A timeout is an error with the code DeadlineExceeded.
type Executor interface {
	ExecSync(ctx context.Context, containerID string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error)
}

// The exit codes of a command that could not be run.
const (
	notRun   = 126
	notFound = 127
)

// execSlack is how much longer than its own timeout a runtime may take.
const execSlack = 15 * time.Second

// Exec runs a command in a container. The exit code 0 is a Success, another code or a timeout a Failure. The message is
// the command's output, at most 10 KiB. Exec returns an error if the runtime did not run the command.
func Exec(ctx context.Context, runtime Executor, id string, command []string, timeout time.Duration) (Result, string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout+execSlack)
	defer cancel()
	stdout, stderr, err := Run(ctx, runtime, id, command, timeout)
	output := string(stdout[:min(len(stdout), maxOutput)])
	output += string(stderr[:min(len(stderr), maxOutput-len(output))])
	exit, exited := errors.AsType[interface {
		error
		Exited() bool
		ExitStatus() int
	}](err)
	switch {
	case err == nil, exited && exit.ExitStatus() == 0:
		return Success, output, nil
	case exited && exit.ExitStatus() >= notRun && exit.ExitStatus() <= notFound:
		return Failure, Stable(output), nil // the runtime's text
	case exited:
		return Failure, output, nil
	case ctx.Err() == nil && status.Code(err) == codes.DeadlineExceeded:
		return Failure, fmt.Sprintf("command timed out: %q timed out after %v", strings.Join(command, " "), timeout), nil
	}
	return Unknown, "", err
}

// Run calls runtime's ExecSync. If the runtime can do it, the output is cut to the size that probes need.
func Run(ctx context.Context, runtime Executor, id string, command []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	if c, ok := runtime.(runtimev1.Runtime); ok {
		return c.ExecSyncClipped(ctx, id, command, timeout, maxOutput)
	}
	return runtime.ExecSync(ctx, id, command, timeout)
}
