package guest

import (
	"context"
	"time"
)

// Backoff spaces the attempts at an agent whose channel was cut. The zero value is
// ready; it is used by one goroutine.
type Backoff struct{ next time.Duration }

// Wait returns true after the next pause, and false when ctx or the VM has ended.
func (b *Backoff) Wait(ctx context.Context, ended <-chan struct{}) bool {
	b.next = min(max(2*b.next, 10*time.Millisecond), 2*time.Second)
	t := time.NewTimer(b.next)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ended:
	case <-ctx.Done():
	}
	return false
}
