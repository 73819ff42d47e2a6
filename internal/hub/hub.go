// Package hub passes events on to any number of subscribers. A slow subscriber cannot hold up the publisher.
package hub

import (
	"errors"
	"sync"
)

var (
	// ErrBehind ends a subscription when its reader is more than its backlog behind. The reader must list the state
	// again, and may subscribe again.
	ErrBehind = errors.New("the receiver is too far behind; list, and subscribe again")
	// ErrClosed ends a subscription when its hub is closed.
	ErrClosed = errors.New("the hub is closed")
)

// Hub is ready to use. It is safe for concurrent use.
type Hub[T any] struct {
	mu     sync.Mutex
	closed bool
	subs   map[*Subscription[T]]struct{}
}

// Subscription receives events in the order of their publication.
type Subscription[T any] struct {
	hub   *Hub[T]
	queue chan T
	err   error // set before queue is closed
}

// Publish publishes the event that event returns to all subscribers. Without subscribers, event is not called.
func (h *Hub[T]) Publish(event func() T) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 {
		return
	}
	e := event()
	for sub := range h.subs {
		select {
		case sub.queue <- e:
		default:
			h.drop(sub, ErrBehind)
		}
	}
}

// Subscribe starts a subscription that may be backlog events behind. The caller closes it.
func (h *Hub[T]) Subscribe(backlog int) (*Subscription[T], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if h.subs == nil {
		h.subs = map[*Subscription[T]]struct{}{}
	}
	sub := &Subscription[T]{hub: h, queue: make(chan T, backlog)}
	h.subs[sub] = struct{}{}
	return sub, nil
}

// Close ends all subscriptions, after the events published before.
func (h *Hub[T]) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for sub := range h.subs {
		h.drop(sub, ErrClosed)
	}
}

// drop is called with mu held.
func (h *Hub[T]) drop(sub *Subscription[T], err error) {
	if _, ok := h.subs[sub]; ok {
		delete(h.subs, sub)
		sub.err = err
		close(sub.queue)
	}
}

// Events is closed when the subscription ends. Err then returns the cause.
func (s *Subscription[T]) Events() <-chan T { return s.queue }

// Err returns why Events was closed. It must not be called before.
func (s *Subscription[T]) Err() error { return s.err }

// Close ends the subscription.
func (s *Subscription[T]) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.drop(s, ErrClosed)
}
