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

// forward is a clock for lease renewals: its time of day never goes back. A controller-manager ignores a renewal that
// is not later than the one before. Without this clock, a node would count as lost for an hour after its clock is set
// back by an hour. It is safe for concurrent use.
type forward struct {
	clock.RealClock

	mu   sync.Mutex
	last time.Time // the last time of day returned, without its monotonic part
	at   time.Time // when it was returned
}

// Now implements clock.Clock.
func (f *forward) Now() time.Time { return f.advance(time.Now()) }

// advance returns the current time of day, or the last one plus the elapsed time if that is later.
func (f *forward) advance(now time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	wall := now.Round(0)
	if next := f.last.Add(now.Sub(f.at)); !f.at.IsZero() && wall.Before(next) {
		wall = next
	}
	f.last, f.at = wall, now
	return wall
}

// resume continues from the renewal time that an earlier process or boot wrote.
func (f *forward) resume(renewed, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last, f.at = renewed.Round(0), now
}

// leaseClock returns the clock for the node's lease. It continues from the renewal time in the lease. It retries until
// the API server answers or ctx ends.
func (k *Keeper) leaseClock(ctx context.Context) *forward {
	f := &forward{}
	_ = pauses.Until(ctx, nil, func() error {
		l, err := k.o.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, k.o.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil && l.Spec.RenewTime != nil:
			f.resume(l.Spec.RenewTime.Time, time.Now())
		}
		return err
	}, nil) // only ctx ends it without success
	return f
}
