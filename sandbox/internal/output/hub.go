// Package output copies a process's output from its agent to its log, if it has one, and to its clients.
package output

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// ErrSlowClient ends an attached stream if its reader falls behind. A slow client must not block the container.
var ErrSlowClient = errors.New("attached client does not read")

// clientChunks bounds a client's queue, in chunks of at most agentv1.MaxChunk.
const clientChunks = 16

// clientPatience is the time after which a client with a full queue is detached.
const clientPatience = time.Second

// Hub distributes one stream of a process to its clients. Only the stream's Pump calls send. End is called once. NewHub
// creates it; its methods are safe for concurrent use.
type Hub struct {
	mu      sync.Mutex
	offset  int64 // of the next byte
	clients map[*Client]bool
	ended   bool
}

// Client is one reader of a hub.
type Client struct {
	chunks  chan []byte   // closed at the stream's end, or on detachment
	gone    chan struct{} // closed by Leave
	patient bool          // the stream waits for this client
	err     error         // reason of the detachment; set before chunks is closed
}

// NewHub returns a hub without clients.
func NewHub() *Hub { return &Hub{clients: map[*Client]bool{}} }

// Join adds a client, which must call Leave. The stream waits for a patient client. Others are detached if they fall
// behind and stop reading.
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

// send distributes the new part of data: after a cut the agent repeats the bytes that the log lacks.
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
		if !c.offer(ctx, data) {
			h.detach(c, ErrSlowClient)
		}
	}
}

// skip starts the stream at an offset.
func (h *Hub) skip(offset int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offset = max(h.offset, offset)
}

// offer returns false if the client is too slow.
func (c *Client) offer(ctx context.Context, data []byte) bool {
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

// End ends every client's stream.
func (h *Hub) End() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ended = true
	for c := range h.clients {
		close(c.chunks)
	}
	clear(h.clients)
}

// Clients returns the number of clients.
func (h *Hub) Clients() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.clients)
}

// CopyTo writes the hub's output until the stream's end (nil), until the client is detached (ErrSlowClient), or until a
// write fails or ctx ends.
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
