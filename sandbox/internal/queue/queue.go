// Package queue delivers values in the order of Put, and never blocks Put.
package queue

import (
	"context"
	"slices"
	"sync"
)

// Queue is an unbounded queue. New creates it. Its methods are safe for concurrent use.
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

// Deliver calls handle for each value, one at a time, until ctx ends, and then for the remaining values. Only one
// goroutine may call it.
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
