package probe

import (
	"context"
	"net"
	"sync"
)

// line records the outcome of the connections of a client that dials on its own goroutines, and may not wait for them.
// It dials within the action's ctx, and ignores the client's.
type line struct {
	ctx  context.Context
	dial Dialer

	mu   sync.Mutex
	over chan struct{} // closed when the newest dial has ended; nil before the first
	err  error         // of the newest ended dial
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

// outcome returns the result of the newest dial. If the action's time is up, it waits for the dial, which is then about
// to end. The caller needs the result to distinguish a pod that does not answer from one that could not be reached.
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
