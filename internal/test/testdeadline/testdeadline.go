// Package testdeadline gives tests deadlines that follow the host's load. A test states how long its work takes at most
// on an idle host, and gets more time while other programs use the processors.
package testdeadline

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/pace"
)

// Boot is the most time that a test's VM on an idle host needs to boot and answer, and for any later request.
func Boot(emulated bool) time.Duration {
	if emulated {
		return time.Minute
	}
	return 10 * time.Second
}

// step is the interval of load measurements.
const step = 100 * time.Millisecond

// most is the largest factor between a deadline and the needed time.
const most = 20

// Context ends with the test, or when work that takes need on an idle host is late. Its clock runs slower while the
// processors are busy.
func Context(t testing.TB, need time.Duration) context.Context {
	t.Helper()
	limited, stop := context.WithTimeout(t.Context(), most*need)
	t.Cleanup(stop)
	ctx, cancel := context.WithCancelCause(limited)
	t.Cleanup(func() { cancel(nil) })
	return cancelAfter(ctx, cancel, need, pace.Load)
}

func cancelAfter(ctx context.Context, cancel context.CancelCauseFunc, need time.Duration, load func() float64) context.Context {
	go func() {
		began, tick := time.Now(), time.NewTicker(step)
		defer tick.Stop()
		for left := need; left > 0; left -= time.Duration(float64(step) / load()) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
		cancel(fmt.Errorf("%w: work that takes %v on an idle host was not done in %v", context.DeadlineExceeded, need, time.Since(began)))
	}()
	return deadlined{ctx}
}

// deadlined reports the cancellation by its clock as a deadline's, for callers of Err.
type deadlined struct{ context.Context }

// Err implements context.Context.
func (d deadlined) Err() error {
	if d.Context.Err() != nil && context.Cause(d.Context) != context.Canceled { //nolint:errorlint // the very value
		return context.DeadlineExceeded
	}
	return d.Context.Err()
}

// For returns the time for work that takes need on an idle host, by the load of this moment. Prefer Context.
func For(need time.Duration) time.Duration { return time.Duration(float64(need) * pace.Load()) }
