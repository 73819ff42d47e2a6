// Package output carries what a process writes from its agent to what keeps it, a log
// or nobody, and to the clients that look at it.
package output

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// ErrSlowClient ends an attached stream whose reader took nothing for a while: a
// container is not held up by who looks at it.
var ErrSlowClient = errors.New("attached client does not read")

// clientChunks bounds what waits for a client, in chunks of at most
// agentv1.MaxChunk.
const clientChunks = 16

// clientPatience is how long a client may take nothing before it is detached.
const clientPatience = time.Second

// Hub passes one stream of a process on to its clients. Only the stream's Pump calls
// send; End is called once. It is made by NewHub; its methods may be called at once.
type Hub struct {
	mu      sync.Mutex
	offset  int64 // of what comes next
	clients map[*Client]bool
	ended   bool
}

// Client is one reader of a hub.
type Client struct {
	chunks  chan []byte   // closed at the stream's end, or when detached
	gone    chan struct{} // closed by Leave
	patient bool          // the stream waits for it
	err     error         // why it was detached; set before chunks is closed
}

// NewHub returns a hub without clients.
func NewHub() *Hub { return &Hub{clients: map[*Client]bool{}} }

// Join adds a client, which calls Leave in the end. The stream waits for a patient
// one; another is detached when it lags and takes nothing.
func (h *Hub) Join(patient bool) *Client {
	c := &Client{chunks: make(chan []byte, clientChunks), gone: make(chan struct{}), patient: patient}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		close(c.chunks)
	} else {
		h.clients[c] = true
	}
	return c
}

// Leave is the inverse of Join.
func (h *Hub) Leave(c *Client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, c)
	close(c.gone)
}

// send passes on what of data has not been: after a cut the agent repeats what
// the log lacks.
func (h *Hub) send(ctx context.Context, offset int64, data []byte) {
	h.mu.Lock()
	end := offset + int64(len(data))
	data = data[min(max(0, h.offset-offset), int64(len(data))):]
	h.offset = max(h.offset, end)
	clients := make([]*Client, 0, len(h.clients))
	for c := range h.clients {
		clients = append(clients, c)
	}
	h.mu.Unlock()
	if len(data) == 0 || len(clients) == 0 {
		return
	}
	data = bytes.Clone(data)
	for _, c := range clients {
		if !c.put(ctx, data) {
			h.detach(c, ErrSlowClient)
		}
	}
}

// skip has the stream begin at an offset.
func (h *Hub) skip(offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offset = max(h.offset, offset)
}

// put returns false for a client that is too slow.
func (c *Client) put(ctx context.Context, data []byte) bool {
	select {
	case c.chunks <- data:
		return true
	default:
	}
	var late <-chan time.Time
	if !c.patient {
		t := time.NewTimer(clientPatience)
		defer t.Stop()
		late = t.C
	}
	select {
	case c.chunks <- data:
	case <-c.gone:
	case <-ctx.Done():
	case <-late:
		return false
	}
	return true
}

func (h *Hub) detach(c *Client, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients[c] {
		delete(h.clients, c)
		c.err = err
		close(c.chunks)
	}
}

// End tells every client that nothing follows.
func (h *Hub) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for c := range h.clients {
		close(c.chunks)
	}
	clear(h.clients)
}

// Clients is how many there are.
func (h *Hub) Clients() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

// CopyTo writes what the hub sends until the stream's end (nil), until the client is
// detached (ErrSlowClient), or until a write fails or ctx ends.
func (c *Client) CopyTo(ctx context.Context, w io.Writer) error {
	for {
		select {
		case data, ok := <-c.chunks:
			if !ok {
				return c.err
			}
			if _, err := w.Write(data); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
