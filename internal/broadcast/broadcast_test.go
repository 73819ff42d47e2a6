package broadcast

import (
	"sync"
	"testing"
)

// TestTell wakes all waiters, and only once.
func TestTell(t *testing.T) {
	t.Parallel()
	var b Broadcast
	b.Notify() // without a waiter
	first := b.Next()
	select {
	case <-first:
		t.Fatal("woken by an earlier Notify")
	default:
	}
	var waiters sync.WaitGroup
	for range 8 {
		next := b.Next()
		waiters.Go(func() { <-next })
	}
	b.Notify()
	waiters.Wait()
	<-first
	select {
	case <-b.Next():
		t.Error("a new waiter is woken by an earlier Notify")
	default:
	}
}
