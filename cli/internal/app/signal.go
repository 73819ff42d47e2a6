package app

import (
	"context"
	"errors"

	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
)

// SignalExit is the exit code of a command that a signal has ended.
func SignalExit(ctx context.Context) error {
	if s := (tty.SignalError{}); errors.As(context.Cause(ctx), &s) {
		return ExitError(128 + int(s.Signal))
	}
	return ctx.Err()
}
