// Package life is how the engine process begins and ends: one for each user, elected by
// a lock, gone when nothing keeps it.
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

// electionWait bounds the wait for another engine to end or to serve: less
// than a client's patience, so that the client gets the reason.
const electionWait = 50 * time.Second

// electionRetry spaces the looks at the lock and the socket: neither tells
// when it changes.
const electionRetry = 5 * time.Millisecond

// ErrServed is Elect's when another engine serves the user already.
var ErrServed = errors.New("another engine serves")

// Elect makes this process the engine of the roots' user. The lock may be
// held by one that is just ending, and by one that a client has started which
// did not live to use it.
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
