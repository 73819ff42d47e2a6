package testdeadline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestFollow: a deadline comes later on a busy host, in proportion to its load, which may change.
func TestFollow(t *testing.T) {
	busyAtFirst := func() func() float64 {
		began := time.Now()
		return func() float64 {
			if time.Since(began) < 8*time.Second {
				return 4
			}
			return 1
		}
	}
	for name, c := range map[string]struct {
		load func() func() float64
		want time.Duration
	}{
		"idle":          {func() func() float64 { return func() float64 { return 1 } }, 10 * time.Second},
		"busy":          {func() func() float64 { return func() float64 { return 3 } }, 30 * time.Second},
		"busy at first": {busyAtFirst, 16 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				inner, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				ctx := cancelAfter(inner, cancel, 10*time.Second, c.load())
				<-ctx.Done()
				if took := time.Since(began); took < c.want-time.Second || took > c.want+time.Second {
					t.Errorf("ended after %v, not %v", took, c.want)
				}
				if !errors.Is(ctx.Err(), context.DeadlineExceeded) || !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
					t.Errorf("ended with %v, because %v", ctx.Err(), context.Cause(ctx))
				}
			})
		})
	}
}

// TestCancelled: the end of a test does not count as a missed deadline.
func TestCancelled(t *testing.T) {
	ended := make(chan context.Context, 1)
	t.Run("ends", func(t *testing.T) { ended <- Context(t, time.Hour) })
	if err := (<-ended).Err(); !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}

func TestFor(t *testing.T) {
	if got := For(time.Second); got < time.Second {
		t.Errorf("%v of a second", got)
	}
	if Boot(true) <= Boot(false) {
		t.Error("emulation needs no more")
	}
}
