// Package broadcast wakes all goroutines that wait for the same event.
package broadcast

import "sync"

// Broadcast notifies any number of waiters of a change. Its zero value is ready. It is safe for concurrent use.
type Broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

// Next returns a channel that is closed by the next Notify. Call it before you read the state that may change, so that
// no change is missed.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch == nil {
		b.ch = make(chan struct{})
	}
	return b.ch
}

// Notify wakes all present waiters.
func (b *Broadcast) Notify() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ch != nil {
		close(b.ch)
		b.ch = nil
	}
}
