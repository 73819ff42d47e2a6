// Package events delivers a pod's events to any number of subscribers. A slow subscriber cannot block the pod.
package events

import (
	"fmt"
	"sync"

	"github.com/containerd/errdefs"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// Bounds of a Hub.
const (
	Queue          = 1024 // events queued for one subscriber
	MaxSubscribers = 64
)

// Errors of a Hub.
var (
	// ErrSlow ends a subscription with a full queue.
	ErrSlow = errdefs.ErrResourceExhausted.WithMessage("subscriber is too slow: events were lost")
	// ErrClosed ends every subscription when the Hub is closed.
	ErrClosed = errdefs.ErrUnavailable.WithMessage("no more events: the shim is ending")
	// ErrTooMany is returned for a subscriber beyond MaxSubscribers.
	ErrTooMany = errdefs.ErrResourceExhausted.WithMessage("too many subscribers")
)

// Hub distributes events. The zero value is ready; its methods are safe for concurrent use.
type Hub struct {
	mu     sync.Mutex
	subs   map[*Subscription]struct{}
	closed bool
}

// Subscription receives events in order. At its end Events is closed, and Err returns the reason.
type Subscription struct {
	// Events is the channel of events, for the subscriber.
	Events <-chan *shimv1.Event

	hub   *Hub
	queue chan *shimv1.Event
	err   error
}

// Subscribe returns a subscription to every event from now on.
func (h *Hub) Subscribe() (*Subscription, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, ErrClosed
	}
	if len(h.subs) >= MaxSubscribers {
		return nil, fmt.Errorf("%w: %d", ErrTooMany, len(h.subs))
	}
	queue := make(chan *shimv1.Event, Queue)
	s := &Subscription{Events: queue, hub: h, queue: queue}
	if h.subs == nil {
		h.subs = map[*Subscription]struct{}{}
	}
	h.subs[s] = struct{}{}
	return s, nil
}

// Publish sends e to every subscriber and never blocks: a subscriber with a full queue is cut off. Subscribers share e
// and must not change it.
func (h *Hub) Publish(e *shimv1.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.subs {
		select {
		case s.queue <- e:
		default:
			h.drop(s, ErrSlow)
		}
	}
}

// Close ends all subscriptions once they have read their queues.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for s := range h.subs {
		h.drop(s, ErrClosed)
	}
}

// Cancel ends the subscription. It is idempotent.
func (s *Subscription) Cancel() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	s.hub.drop(s, nil)
}

// Err returns why Events was closed.
func (s *Subscription) Err() error {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	return s.err
}

func (h *Hub) drop(s *Subscription, err error) {
	if _, ok := h.subs[s]; !ok {
		return
	}
	delete(h.subs, s)
	s.err = err
	close(s.queue)
}
