package sandbox

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// clientChunks bounds what waits for a client, in chunks of at most
// agentv1.MaxChunk.
const clientChunks = 16

// clientPatience is how long a client may take nothing before it is detached.
const clientPatience = time.Second

// hub passes one stream of a process on to its clients. Only the stream's pump
// calls send and end.
type hub struct {
	mu      sync.Mutex
	offset  int64 // of what comes next
	clients map[*client]bool
	ended   bool
}

// client is one reader of a hub.
type client struct {
	chunks  chan []byte   // closed at the stream's end, or when detached
	gone    chan struct{} // closed by leave
	patient bool          // the stream waits for it
	err     error         // why it was detached; set before chunks is closed
}

func newHub() *hub { return &hub{clients: map[*client]bool{}} }

// join adds a client, which calls leave in the end.
func (h *hub) join(patient bool) *client {
	c := &client{chunks: make(chan []byte, clientChunks), gone: make(chan struct{}), patient: patient}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended {
		close(c.chunks)
	} else {
		h.clients[c] = true
	}
	return c
}

func (h *hub) leave(c *client) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.clients, c)
	close(c.gone)
}

// send passes on what of data has not been: after a cut the agent repeats what
// the log lacks.
func (h *hub) send(ctx context.Context, offset int64, data []byte) {
	h.mu.Lock()
	end := offset + int64(len(data))
	if skip := h.offset - offset; skip > 0 {
		data = data[min(skip, int64(len(data))):]
	}
	h.offset = max(h.offset, end)
	clients := make([]*client, 0, len(h.clients))
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
func (h *hub) skip(offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offset = max(h.offset, offset)
}

// put returns false for a client that is too slow.
func (c *client) put(ctx context.Context, data []byte) bool {
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

func (h *hub) detach(c *client, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients[c] {
		delete(h.clients, c)
		c.err = err
		close(c.chunks)
	}
}

// end tells every client that nothing follows.
func (h *hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for c := range h.clients {
		close(c.chunks)
	}
	clear(h.clients)
}
