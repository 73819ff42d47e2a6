// Package queue passes things on in the order in which they were put, without ever
// holding up who puts them.
package queue

import (
	"context"
	"slices"
	"sync"
)

// Queue is made by New. Its methods may be called at once.
type Queue[T any] struct {
	mu      sync.Mutex
	waiting []T
	wake    chan struct{} // holds one
}

// New returns an empty queue.
func New[T any]() *Queue[T] { return &Queue[T]{wake: make(chan struct{}, 1)} }

// Put appends v. It does not wait.
func (q *Queue[T]) Put(v T) {
	q.mu.Lock()
	q.waiting = append(q.waiting, v)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Deliver calls handle for each thing, one at a time, until ctx ends, and then for
// what is left. One goroutine calls it.
func (q *Queue[T]) Deliver(ctx context.Context, handle func(T)) {
	for {
		closing := false
		select {
		case <-q.wake:
		case <-ctx.Done():
			closing = true
		}
		q.mu.Lock()
		batch := slices.Clone(q.waiting)
		q.waiting = q.waiting[:0]
		q.mu.Unlock()
		for _, v := range batch {
			handle(v)
		}
		if closing {
			return
		}
	}
}
