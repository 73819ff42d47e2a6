package runner

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
)

// Bound returns the Runner for the pods of an API server. It does not list static pods.
func (r *Runner) Bound() control.Runner { return bound{r} }

// Static returns the Runner for static pods. It lists only these. Of two static pods with one name, the second waits
// until the first is removed. Then removed is called, which must not block.
func (r *Runner) Static(removed func(namespace, name string)) control.Runner {
	return static{r, removed}
}

type bound struct{ *Runner }

// All implements control.Runner.
func (b bound) All() []types.UID { return b.all(false) }

type static struct {
	*Runner
	removed func(namespace, name string)
}

// All implements control.Runner.
func (s static) All() []types.UID { return s.all(true) }

// all returns the UIDs of either the static pods or the others.
func (r *Runner) all(static bool) (all []types.UID) {
	for _, uid := range r.All() {
		if control.Static(uid) == static {
			all = append(all, uid)
		}
	}
	return all
}

// Run implements control.Runner.
func (s static) Run(ctx context.Context, p *corev1.Pod) error {
	s.files.Lock() // no other pod of that name can be added meanwhile
	defer s.files.Unlock()
	if other := s.FindStatic(p.Namespace, p.Name); other != nil && other.UID != p.UID {
		return fmt.Errorf("the earlier pod %s/%s has not ended: %w", p.Namespace, p.Name, control.ErrWaits)
	}
	return s.Runner.Run(ctx, p)
}

// Remove implements control.Runner.
func (s static) Remove(ctx context.Context, uid types.UID) error {
	given := s.Spec(uid)
	if err := s.Runner.Remove(ctx, uid); err != nil || given == nil {
		return err
	}
	s.removed(given.Namespace, given.Name)
	return nil
}

// Revivable implements control.Runner.
func (r *Runner) Revivable(uid types.UID) bool {
	p := r.Get(uid)
	if p == nil || !p.HasEnded() || p.Damaged() != nil {
		return false
	}
	why := p.Eviction()
	return why != nil && why.Passing
}

// Revive implements control.Runner. The pod keeps the contents of its emptyDirs.
func (r *Runner) Revive(ctx context.Context, uid types.UID) error {
	p, err := r.manager.Get(uid)
	if err != nil {
		return err
	}
	return p.Start(ctx)
}

// FindStatic returns the static pod with a name, or nil.
func (r *Runner) FindStatic(namespace, name string) *corev1.Pod {
	for _, p := range r.manager.All() {
		if given := p.Original(); control.Static(given.UID) && given.Namespace == namespace && given.Name == name {
			return given
		}
	}
	return nil
}
