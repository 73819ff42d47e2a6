package guest

import (
	"context"
	"time"
)

// Backoff delays the attempts to reach an agent after its channel was cut. The zero value is ready for use by one
// goroutine.
type Backoff struct{ next time.Duration }

// Wait returns true after the next pause, or false if ctx or the VM has ended.
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
