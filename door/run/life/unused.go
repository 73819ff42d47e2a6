package life

import (
	"net"
	"net/http"
	"sync"
)

// Unused tracks the connections of an http.Server without any request so far. Shutdown waits five seconds for a
// request on each: one superfluous connection of a client would delay the engine's end and the start of the next
// engine.
type Unused struct {
	mu    sync.Mutex
	conns map[net.Conn]bool
	ended bool
}

// State is the server's ConnState.
func (u *Unused) State(c net.Conn, s http.ConnState) {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case s != http.StateNew:
		delete(u.conns, c)
	case u.ended:
		_ = c.Close() // its client asks the next engine
	default:
		if u.conns == nil {
			u.conns = map[net.Conn]bool{}
		}
		u.conns[c] = true
	}
}

// Close closes these connections and later ones.
func (u *Unused) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ended = true
	for c := range u.conns {
		_ = c.Close()
	}
}
