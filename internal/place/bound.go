package place

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrSilent is matched where a file system does not answer, as one of a network does not whose
// server is gone.
var ErrSilent = errors.New("its file system does not answer")

// patience is how long a file system has to answer.
const patience = 10 * time.Second

// Open opens what path names, links followed, as the host has them now. The caller closes it.
// Errors match those of this package, or the kernel's.
func (r Rules) Open(ctx context.Context, path string, how How) (*Place, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrSilent)
	defer cancel()
	return left.bound(ctx, path, func() (*Place, error) { return r.open(path, how) })
}

// abandoned are calls that wait in the kernel for an answer after their callers have gone: how
// many for each path. Who ends such a call is the file system alone.
type abandoned struct {
	mu    sync.Mutex
	paths map[string]int
}

// mostAbandoned is how many there may be for a path: a client may ask again and again.
const mostAbandoned = 4

var left = abandoned{paths: map[string]int{}}

// call is one of them.
type call struct {
	ended chan struct{}
	given bool // up by its caller
	place *Place
	err   error
}

// bound returns what open does, or when ctx ends why that is; what is opened then is closed.
func (a *abandoned) bound(ctx context.Context, path string, open func() (*Place, error)) (*Place, error) {
	a.mu.Lock()
	stuck := a.paths[path] >= mostAbandoned
	a.mu.Unlock()
	if stuck {
		return nil, fmt.Errorf("host path %.200q: %w", path, ErrSilent)
	}
	c := &call{ended: make(chan struct{})}
	go func() {
		p, err := open()
		a.end(c, path, p, err)
	}()
	select {
	case <-c.ended:
	case <-ctx.Done():
		a.giveUp(c, path)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.given {
		return nil, fmt.Errorf("host path %.200q: %w", path, context.Cause(ctx))
	}
	return c.place, c.err
}

func (a *abandoned) giveUp(c *call, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-c.ended:
	default:
		c.given = true
		a.paths[path]++
	}
}

func (a *abandoned) end(c *call, path string, p *Place, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.place, c.err = p, err
	close(c.ended)
	if !c.given {
		return
	}
	if p != nil {
		p.Close()
	}
	if a.paths[path]--; a.paths[path] == 0 {
		delete(a.paths, path)
	}
}
