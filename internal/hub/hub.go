// Package hub passes events on to any number of subscribers, none of which can
// hold the publisher up.
package hub

import (
	"errors"
	"sync"
)

var (
	// ErrBehind is why a subscription ended whose reader was more than its
	// backlog behind. It has to look anew, and may subscribe again.
	ErrBehind = errors.New("the receiver is too far behind; list, and subscribe again")
	// ErrClosed is why a subscription ended with its hub.
	ErrClosed = errors.New("the hub is closed")
)

// Hub is ready to use. Its methods may be called at once.
type Hub[T any] struct {
	mu     sync.Mutex
	closed bool
	subs   map[*Subscription[T]]struct{}
}

// Subscription receives events in the order in which they were published.
type Subscription[T any] struct {
	hub   *Hub[T]
	queue chan T
	err   error // set before queue is closed
}

// Publish gives all subscribers the event that event makes. Without a subscriber
// none is made.
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

// Subscribe begins a subscription that may be backlog events behind. Its owner
// closes it.
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

// Close ends all subscriptions, after what was published before.
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

// Events is closed when the subscription ends, which Err explains.
func (s *Subscription[T]) Events() <-chan T { return s.queue }

// Err says why Events was closed. It is not to be called before.
func (s *Subscription[T]) Err() error { return s.err }

// Close ends the subscription.
func (s *Subscription[T]) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.drop(s, ErrClosed)
}
