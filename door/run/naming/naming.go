// Package naming prevents conflicts between adding pods that name volumes and removing volumes that no pod names.
// It holds no lock while volumes are created or grown.
package naming

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

// Names tracks volumes that are about to be used or removed. The zero value is ready to use. Names is safe for
// concurrent use.
type Names struct {
	mu     sync.Mutex
	wanted map[string]int
	going  map[string]chan struct{} // closed when the removal is done or failed
}

// Want prevents the removal of these volumes, existing or not, until done is called. It waits for removals in
// progress.
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

// Remove reserves a volume for removal until done is called. It returns an errdefs.ErrConflict if the volume is wanted,
// and the error of used, which it calls when no new user can appear.
func (n *Names) Remove(ctx context.Context, name string, used func() error) (done func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for n.going[name] != nil {
		if err := n.gone(ctx, name); err != nil {
			return nil, err
		}
	}
	if n.wanted[name] > 0 {
		return nil, errclass.New(errdefs.ErrConflict, "volume %s is used by a pod that is being created", name)
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

// gone waits for the end of a removal. It releases mu while it waits.
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
