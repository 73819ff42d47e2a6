package sandbox

import "slices"

// eventQueue holds events until deliver has passed them on. They are queued
// with the sandbox's mutex held, so that their order is that of what happened.
type eventQueue struct {
	waiting []Event
	wake    chan struct{}
}

// emit queues an event; the caller holds mu.
func (s *Sandbox) emit(e Event) {
	if e.Time.IsZero() {
		e.Time = now()
	}
	s.events.waiting = append(s.events.waiting, e)
	select {
	case s.events.wake <- struct{}{}:
	default:
	}
}

// deliver passes events on until the sandbox is closed, and then what is left.
func (s *Sandbox) deliver() {
	for {
		closing := false
		select {
		case <-s.events.wake:
		case <-s.ctx.Done():
			closing = true
		}
		s.mu.Lock()
		batch := slices.Clone(s.events.waiting)
		s.events.waiting = s.events.waiting[:0]
		s.mu.Unlock()
		for _, e := range batch {
			if s.o.Events != nil {
				s.o.Events(e)
			}
		}
		if closing {
			return
		}
	}
}
