package manager

import (
	"context"
	"fmt"
	"sync"
)

// orphans are the ends of pods that no client waits for: foreground runs of lost clients, and pods that remove
// themselves.
type orphans struct {
	mu   sync.Mutex
	open map[*orphan]struct{}
}

// orphan is such an end, if gone returns true.
type orphan struct {
	gone func() bool
	done chan struct{}
}

// add adds an end that counts as an orphan while gone returns true, until end is called.
func (o *orphans) add(gone func() bool) (end func()) {
	n := &orphan{gone, make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[*orphan]struct{}{}
	}
	o.open[n] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.open, n)
		close(n.done)
	}
}

// settle returns when the current orphans have ended.
func (o *orphans) settle(ctx context.Context) error {
	o.mu.Lock()
	var wait []*orphan
	for n := range o.open {
		if n.gone() {
			wait = append(wait, n)
		}
	}
	o.mu.Unlock()
	for _, n := range wait {
		select {
		case <-n.done:
		case <-ctx.Done():
			return fmt.Errorf("wait for the end of orphaned pods: %w", ctx.Err())
		}
	}
	return nil
}

func always() bool { return true }
