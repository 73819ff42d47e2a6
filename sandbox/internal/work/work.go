// Package work owns the goroutines of a sandbox.
package work

import (
	"context"
	"sync"
)

// Group runs goroutines until it is closed. New creates it. Its methods are safe for concurrent use.
type Group struct {
	ctx    context.Context // ends with Cancel
	cancel context.CancelFunc

	mu  sync.Mutex // held while a goroutine is added or ctx ends
	all sync.WaitGroup
}

// New returns a group without goroutines.
func New() *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	return g
}

// Context returns the context that bounds the goroutines.
func (g *Group) Context() context.Context { return g.ctx }

// Go runs f in a goroutine that Wait waits for. After Cancel it does not run f.
func (g *Group) Go(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ctx.Err() == nil {
		g.all.Go(f)
	}
}

// Cancel ends the context.
func (g *Group) Cancel() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cancel()
}

// Wait returns when every goroutine has ended. The caller has called Cancel.
func (g *Group) Wait() { g.all.Wait() }
