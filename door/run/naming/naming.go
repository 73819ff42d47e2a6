// Package naming keeps who adds pods that name volumes and who removes volumes that none names out of
// each other's way, without a lock that is held while volumes are made or grow.
package naming

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// ErrNamed is of a volume that pods name which are being added.
var ErrNamed = errors.New("is used by a pod that is being created")

// Names are those of volumes that somebody is about to use or to remove. The zero value is none;
// its methods may be called at once.
type Names struct {
	mu     sync.Mutex
	wanted map[string]int
	going  map[string]chan struct{} // closed when the volume is gone, or stays
}

// Want keeps the volumes called so from being removed, whether there are any or not, until done.
// It waits for removals under way.
func (n *Names) Want(ctx context.Context, names []string) (done func(), err error) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		at := slices.IndexFunc(names, func(name string) bool { return n.going[name] != nil })
		if at < 0 {
			break
		}
		if err := n.gone(ctx, names[at]); err != nil {
			return nil, err
		}
	}
	if n.wanted == nil {
		n.wanted = map[string]int{}
	}
	for _, name := range names {
		n.wanted[name]++
	}
	return sync.OnceFunc(func() { n.release(names) }), nil
}

func (n *Names) release(names []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, name := range names {
		if n.wanted[name]--; n.wanted[name] == 0 {
			delete(n.wanted, name)
		}
	}
}

// Remove has nobody want a volume until done, unless somebody does (ErrNamed) or used returns an
// error, which is called when nobody can come to want it any more.
func (n *Names) Remove(ctx context.Context, name string, used func() error) (done func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.going[name] != nil {
		if err := n.gone(ctx, name); err != nil {
			return nil, err
		}
	}
	if n.wanted[name] > 0 {
		return nil, fmt.Errorf("volume %s %w", name, ErrNamed)
	}
	if err := used(); err != nil {
		return nil, err
	}
	if n.going == nil {
		n.going = map[string]chan struct{}{}
	}
	gone := make(chan struct{})
	n.going[name] = gone
	return sync.OnceFunc(func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.going, name)
		close(gone)
	}), nil
}

// gone waits for the end of a removal, during which the caller's hold of mu is given up.
func (n *Names) gone(ctx context.Context, name string) error {
	gone := n.going[name]
	n.mu.Unlock()
	defer n.mu.Lock()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for the removal of volume %s: %w", name, context.Cause(ctx))
	}
}
