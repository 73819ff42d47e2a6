package cri

import (
	"context"
	"sync"
)

// flights run operations that belong to what they are about and not to who
// asked: a second request for the same key joins the first, and a request that
// goes away leaves its operation running.
type flights struct {
	mu      sync.Mutex
	running map[string]*flight
}

type flight struct {
	done chan struct{}
	id   string
	err  error
}

// do joins the operation of key or starts f with the service's context, in
// a goroutine of the service, and returns its result, or ctx's error.
func (s *Service) do(ctx context.Context, key string, f func(context.Context) (string, error)) (string, error) {
	s.flights.mu.Lock()
	fl := s.flights.running[key]
	if fl == nil {
		fl = &flight{done: make(chan struct{})}
		if !s.spawn(func() { s.fly(key, fl, f) }) {
			s.flights.mu.Unlock()
			return "", errClosed
		}
		if s.flights.running == nil {
			s.flights.running = map[string]*flight{}
		}
		s.flights.running[key] = fl
	}
	s.flights.mu.Unlock()
	select {
	case <-fl.done:
		return fl.id, fl.err
	case <-ctx.Done():
		return "", fail(ctx.Err(), "wait for %s, which goes on", key)
	}
}

func (s *Service) fly(key string, fl *flight, f func(context.Context) (string, error)) {
	fl.id, fl.err = f(s.ctx)
	s.flights.mu.Lock()
	delete(s.flights.running, key)
	s.flights.mu.Unlock()
	close(fl.done)
}
