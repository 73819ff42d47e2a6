package place

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrSilent is matched if a file system does not answer, for example a network file system without a server.
var ErrSilent = errors.New("its file system does not answer")

// patience is the time that a file system has to answer.
const patience = 10 * time.Second

// Open opens the file or directory that path names now, following links. The caller closes it. Errors match this
// package's or the kernel's.
func (r Rules) Open(ctx context.Context, path string, how OpenOptions) (*Place, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, ErrSilent)
	defer cancel()
	return left.bound(ctx, path, func() (*Place, error) { return r.open(path, how) })
}

// abandoned are calls that may wait in the kernel after their callers have given up, by path. Only the file system can
// end such a call.
type abandoned struct {
	mu    sync.Mutex
	paths map[string]*turns
}

// turns are the calls for one path.
type turns struct {
	taken     int // calls that have not ended
	abandoned int // abandoned calls among them
	waiting   int // callers that wait for a turn
	changed   chan struct{}
}

// mostAbandoned is the most concurrent calls for a path: each may be abandoned, and a client may try again and again.
const mostAbandoned = 4

var left = abandoned{paths: map[string]*turns{}}

// call is one of them.
type call struct {
	ended     chan struct{}
	abandoned bool // abandoned by its caller
	place     *Place
	err       error
}

// bound returns the result of open, or when ctx ends its cause; a place that is opened later is closed.
func (a *abandoned) bound(ctx context.Context, path string, open func() (*Place, error)) (*Place, error) {
	if err := a.acquire(ctx, path); err != nil {
		return nil, fmt.Errorf("host path %.200q: %w", path, err)
	}
	c := &call{ended: make(chan struct{})}
	go func() {
		p, err := open()
		a.release(c, path, p, err)
	}()
	select {
	case <-c.ended:
	case <-ctx.Done():
		a.abandon(c, path)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if c.abandoned {
		return nil, fmt.Errorf("host path %.200q: %w", path, context.Cause(ctx))
	}
	return c.place, c.err
}

// acquire waits for a turn, which release returns. It returns ErrSilent if all possible calls are abandoned.
func (a *abandoned) acquire(ctx context.Context, path string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := a.paths[path]
	if t == nil {
		t = &turns{changed: make(chan struct{})}
		a.paths[path] = t
	}
	t.waiting++
	defer func() {
		t.waiting--
		a.forget(path, t)
	}()
	for t.taken >= mostAbandoned {
		if t.abandoned >= mostAbandoned {
			return ErrSilent
		}
		changed := t.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		a.mu.Lock()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	t.taken++
	return nil
}

// change wakes the callers that wait for a turn; the caller holds mu.
func (t *turns) change() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// forget removes an unused path; the caller holds mu.
func (a *abandoned) forget(path string, t *turns) {
	if t.taken == 0 && t.waiting == 0 {
		delete(a.paths, path)
	}
}

func (a *abandoned) abandon(c *call, path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-c.ended:
	default:
		c.abandoned = true
		t := a.paths[path]
		t.abandoned++
		t.change()
	}
}

func (a *abandoned) release(c *call, path string, p *Place, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c.place, c.err = p, err
	close(c.ended)
	t := a.paths[path]
	t.taken--
	if c.abandoned {
		t.abandoned--
		if p != nil {
			p.Close()
		}
	}
	t.change()
	a.forget(path, t)
}
