package probe

import (
	"context"
	"errors"
)

// TCP connects to a port of the pod and closes the connection. That it cannot is
// a Failure with the reason, and no error.
func TCP(ctx context.Context, dial Dialer, port int) (Result, string, error) {
	conn, err := dial(ctx, port)
	if errors.Is(err, ErrNotAsked) {
		return Unknown, "", err
	}
	if err != nil {
		return Failure, Stable(err.Error()), nil
	}
	_ = conn.Close() // it was opened, which is all that was asked
	return Success, "", nil
}
