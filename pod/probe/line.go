package probe

import (
	"context"
	"net"
	"sync"
)

// line remembers what becomes of the connections of a client that dials on
// goroutines of its own, and may not wait for them. It dials within one ctx, the
// action's, whatever the client would.
type line struct {
	ctx  context.Context
	dial Dialer

	mu   sync.Mutex
	over chan struct{} // closed when the newest connecting is; nil before the first
	err  error         // of the newest that is over
	done bool          // it has succeeded
}

func (l *line) connect(port int) (net.Conn, error) {
	over := make(chan struct{})
	l.mu.Lock()
	l.over = over
	l.mu.Unlock()
	defer close(over)
	conn, err := l.dial(l.ctx, port)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err, l.done = err, err == nil
	return conn, err
}

// outcome tells what became of the newest connection. If the action's time is up
// it waits for it, which is then about to end as well: the client cannot tell a
// pod that does not answer from one that nobody could ask.
func (l *line) outcome() (connected bool, failed error) {
	l.mu.Lock()
	over := l.over
	l.mu.Unlock()
	if over != nil && l.ctx.Err() != nil {
		<-over
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done, l.err
}
