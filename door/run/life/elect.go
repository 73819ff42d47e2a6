// Package life controls the life of the engine process: one engine per user, elected by a lock, which stops when
// idle.
package life

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/flock"
)

// electionWait bounds the wait for another engine to stop or to serve. It is shorter than a client's timeout, so
// that the client gets the reason.
const electionWait = 50 * time.Second

// electionRetry is the interval between checks of the lock and the socket. Neither reports changes.
const electionRetry = 5 * time.Millisecond

// ErrServed is returned by Elect if another engine already serves the user.
var ErrServed = errors.New("another engine serves")

// Elect makes this process the engine of the roots' user. For a moment, the lock may be held by an engine that is
// stopping, or by one that a client has started and that ends without serving.
func Elect(ctx context.Context, r dirs.Roots) (*flock.Lock, error) {
	if err := r.Ensure(); err != nil {
		return nil, fmt.Errorf("start the engine: %w", err)
	}
	if err := dirs.Ensure(r.Instance(client.Instance), 0o711); err != nil {
		return nil, fmt.Errorf("start the engine: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, electionWait)
	defer cancel()
	for {
		lock, err := flock.Try(client.Lock(r))
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, flock.ErrLocked) {
			return nil, fmt.Errorf("start the engine: %w", err)
		}
		if conn, err := net.Dial("unix", client.Socket(r)); err == nil {
			conn.Close()
			return nil, ErrServed
		}
		select {
		case <-time.After(electionRetry):
		case <-ctx.Done():
			return nil, fmt.Errorf("start the engine: another one holds the lock and does not serve: %w: %w", err, ctx.Err())
		}
	}
}
