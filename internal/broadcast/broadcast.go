// Package broadcast wakes everybody who waits for the same thing.
package broadcast

import "sync"

// Broadcast tells any number of waiters that something has changed. Its zero value
// is ready, and its methods may be called at once from any goroutine.
type Broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// Next is closed at the next Tell. Who calls it before looking at what may change
// misses no change.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// Tell wakes everybody who waits now.
func (b *Broadcast) Tell() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
