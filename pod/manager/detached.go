package manager

import (
	"context"
	"fmt"
	"sync"
)

// detachedEnds are the ends of pods that no client waits for: foreground runs of lost clients, and pods that remove
// themselves.
type detachedEnds struct {
	mu   sync.Mutex
	open map[*detachedEnd]struct{}
}

// detachedEnd is such an end, if gone returns true.
type detachedEnd struct {
	gone func() bool
	done chan struct{}
}

// add adds an end that counts as detached while gone returns true, until end is called.
func (o *detachedEnds) add(gone func() bool) (end func()) {
	n := &detachedEnd{gone, make(chan struct{})}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[*detachedEnd]struct{}{}
	}
	o.open[n] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.open, n)
		close(n.done)
	}
}

// wait returns when the current detached ends are over.
func (o *detachedEnds) wait(ctx context.Context) error {
	o.mu.Lock()
	var wait []*detachedEnd
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
