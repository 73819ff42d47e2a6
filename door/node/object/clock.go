package object

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// forward is a clock whose time of day never goes back, for the times at which a lease was renewed. A
// controller-manager counts only a renewal whose time is later than the one before: a node whose clock is set back an
// hour would be lost for that hour. Its methods may be called at once.
type forward struct {
	clock.RealClock

	mu   sync.Mutex
	last time.Time // what was told last, without what only passes
	at   time.Time // when
}

// Now implements clock.Clock.
func (f *forward) Now() time.Time { return f.tell(time.Now()) }

// tell is the time of day now, or what was told last and what has passed since.
func (f *forward) tell(now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	wall := now.Round(0)
	if next := f.last.Add(now.Sub(f.at)); !f.at.IsZero() && wall.Before(next) {
		wall = next
	}
	f.last, f.at = wall, now
	return wall
}

// resume has the clock go on from where that of an earlier process, or of an earlier boot, told that the lease was renewed.
func (f *forward) resume(renewed, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.at = renewed.Round(0), now
}

// leaseClock is the clock for the node's lease, which goes on from what the lease says. It asks until it has been told,
// or ctx ends.
func (k *Keeper) leaseClock(ctx context.Context) *forward {
	f := &forward{}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		l, err := k.o.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, k.o.Name, metav1.GetOptions{})
		switch {
		case err == nil && l.Spec.RenewTime != nil:
			f.resume(l.Spec.RenewTime.Time, time.Now())
			return f
		case err == nil, apierrors.IsNotFound(err):
			return f
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return f
		}
	}
}
