package probe

import (
	"context"
	"errors"
)

// TCP connects to a port of the pod and closes the connection. If the connection fails, the result is a Failure with
// the reason, without an error.
func TCP(ctx context.Context, dial Dialer, port int) (Result, string, error) {
	conn, err := dial(ctx, port)
	if errors.Is(err, ErrNotAsked) {
		return Unknown, "", err
	}
	if err != nil {
		return Failure, Stable(err.Error()), nil
	}
	_ = conn.Close() // the connection itself is the result
	return Success, "", nil
}
