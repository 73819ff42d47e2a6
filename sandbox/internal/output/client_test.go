package output

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// send sends chunks like a stream's pump.
func send(t *testing.T, h *Hub, chunks int) {
	for range chunks {
		h.send(t.Context(), h.offset, []byte("x"))
	}
}

// TestHubSkips: a stream that starts at an offset sends nothing before it.
func TestHubSkips(t *testing.T) {
	t.Parallel()
	h := NewHub()
	h.skip(3)
	h.skip(1)
	c := h.Join(false)
	h.send(t.Context(), 0, []byte("abcdef"))
	h.End()
	var got bytes.Buffer
	if err := c.CopyTo(t.Context(), &got); err != nil || got.String() != "def" {
		t.Errorf("%q, %v", &got, err)
	}
}

// TestHubClients: each client receives its own copy of the data sent between its Join and its Leave.
func TestHubClients(t *testing.T) {
	t.Parallel()
	h := NewHub()
	h.send(t.Context(), 0, []byte("before"))
	one, two := h.Join(false), h.Join(true)
	if n := h.Clients(); n != 2 {
		t.Errorf("%d clients", n)
	}
	data := []byte("both")
	h.send(t.Context(), 6, data)
	copy(data, "####")
	h.Leave(one)
	h.send(t.Context(), 10, []byte("+two"))
	h.End()
	late := h.Join(false)
	if n := h.Clients(); n != 0 {
		t.Errorf("%d clients after the end", n)
	}
	for c, want := range map[*Client]string{two: "both+two", late: ""} {
		var got bytes.Buffer
		if err := c.CopyTo(t.Context(), &got); err != nil || got.String() != want {
			t.Errorf("%q, %v, want %q", &got, err, want)
		}
	}
	if got := string(<-one.chunks); got != "both" || len(one.chunks) != 0 {
		t.Errorf("the client that left has %q and %d more chunks", got, len(one.chunks))
	}
}

// TestSlowClient: a client that reads nothing during its patience is detached with ErrSlowClient, after it has received
// the sent data. The others miss nothing.
func TestSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub()
		slow, quick := h.Join(false), h.Join(false)
		var got bytes.Buffer
		done := make(chan error, 1)
		go func() { done <- quick.CopyTo(t.Context(), &got) }()
		began := time.Now()
		for range clientChunks {
			send(t, h, 1)
			synctest.Wait()
		}
		if time.Since(began) != 0 || h.Clients() != 2 {
			t.Errorf("%d clients after %v, though all chunks have room", h.Clients(), time.Since(began))
		}
		send(t, h, 3)
		if took := time.Since(began); took != time.Second || h.Clients() != 1 {
			t.Errorf("%d clients after %v", h.Clients(), took)
		}
		h.End()
		if err := <-done; err != nil || got.Len() != clientChunks+3 {
			t.Errorf("the quick client has %d bytes: %v", got.Len(), err)
		}
		got.Reset()
		if err := slow.CopyTo(t.Context(), &got); !errors.Is(err, ErrSlowClient) || got.Len() != clientChunks {
			t.Errorf("the slow client has %d bytes: %v", got.Len(), err)
		}
		h.Leave(slow)
		h.Leave(quick)
	})
}

// TestPatientClient: the stream waits for a patient client until it reads, leaves or the context ends. It waits for
// other clients only while they lag.
func TestPatientClient(t *testing.T) {
	for _, tc := range []struct {
		name    string
		patient bool
		until   func(h *Hub, c *Client, cancel func())
	}{
		{name: "it takes more", patient: true, until: func(_ *Hub, c *Client, _ func()) { <-c.chunks }},
		{name: "it leaves", patient: true, until: func(h *Hub, c *Client, _ func()) { h.Leave(c) }},
		{name: "the stream ends", patient: true, until: func(_ *Hub, _ *Client, cancel func()) { cancel() }},
		{name: "another takes more", until: func(_ *Hub, c *Client, _ func()) { <-c.chunks }},
		{name: "another leaves", until: func(h *Hub, c *Client, _ func()) { h.Leave(c) }},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := NewHub()
			c := h.Join(tc.patient)
			send(t, h, clientChunks)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wait := time.Second - 1
			if tc.patient {
				wait = time.Hour
			}
			time.AfterFunc(wait, func() { tc.until(h, c, cancel) })
			began := time.Now()
			h.send(ctx, h.offset, []byte("x"))
			if took := time.Since(began); took != wait || c.err != nil {
				t.Errorf("%s: sent after %v, want %v: %v", tc.name, took, wait, c.err)
			}
		})
	}
}

// TestCopyToFails: CopyTo returns its writer's error and its context's cause.
func TestCopyToFails(t *testing.T) {
	t.Parallel()
	h := NewHub()
	c := h.Join(false)
	send(t, h, 1)
	r, w := io.Pipe()
	broken := errors.New("broken")
	r.CloseWithError(broken)
	if err := c.CopyTo(t.Context(), w); !errors.Is(err, broken) {
		t.Errorf("a broken writer: %v", err)
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if err := c.CopyTo(ctx, io.Discard); !errors.Is(err, why) {
		t.Errorf("a context that has ended: %v", err)
	}
}
