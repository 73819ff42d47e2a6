package qmp

import (
	"context"
	"slices"
)

// maxQueued bounds the events that a subscription holds for a slow reader. Beyond it the oldest event is dropped:
// QEMU's events are states, and the latest one counts.
const maxQueued = 64

// Subscription is a queue of events by name.
type Subscription struct {
	c      *Client
	names  []string
	events chan Event
}

// Subscribe queues events of the given names, or all events, from now on. Subscribe before the command that causes the
// event. The caller calls Cancel.
func (c *Client) Subscribe(names ...string) *Subscription {
	s := &Subscription{c: c, names: names, events: make(chan Event, maxQueued)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs[s] = struct{}{}
	return s
}

// Cancel ends the subscription.
func (s *Subscription) Cancel() {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	delete(s.c.subs, s)
}

// Next returns the next event, or the error of the connection or of ctx. Events that arrived before the connection
// ended come first.
func (s *Subscription) Next(ctx context.Context) (Event, error) {
	select {
	case e := <-s.events:
		return e, nil
	default:
	}
	select {
	case e := <-s.events:
		return e, nil
	case <-s.c.done:
		select {
		case e := <-s.events:
			return e, nil
		default:
			return Event{}, s.c.Err()
		}
	case <-ctx.Done():
		return Event{}, ctx.Err()
	}
}

// offer queues e. The client's one reader calls it with the client's lock held.
func (s *Subscription) offer(e Event) {
	if len(s.names) > 0 && !slices.Contains(s.names, e.Name) {
		return
	}
	for {
		select {
		case s.events <- e:
			return
		default:
		}
		select {
		case <-s.events:
		default:
		}
	}
}
