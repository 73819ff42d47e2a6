// Package testdeadline gives tests deadlines that follow the machine that they run
// on: a test states what its work takes at most on an idle machine, and gets as
// much more as the processors are wanted by others meanwhile.
package testdeadline

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/pace"
)

// Boot is what an idle machine needs at most until a VM of a test has booted and
// answers, and for anything that is asked of it then.
func Boot(emulated bool) time.Duration {
	if emulated {
		return time.Minute
	}
	return 10 * time.Second
}

// step is how often the load is measured.
const step = 100 * time.Millisecond

// most is how many times what is needed a deadline is off at most.
const most = 20

// Context ends with the test, or when work that takes need on an idle machine is
// late. Its clock runs slower while the processors are busy.
func Context(t testing.TB, need time.Duration) context.Context {
	t.Helper()
	limited, stop := context.WithTimeout(t.Context(), most*need)
	t.Cleanup(stop)
	ctx, cancel := context.WithCancelCause(limited)
	t.Cleanup(func() { cancel(nil) })
	return follow(ctx, cancel, need, pace.Load)
}

func follow(ctx context.Context, cancel context.CancelCauseFunc, need time.Duration, load func() float64) context.Context {
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

// deadlined reports the cancellation of its clock as a deadline's, for what asks
// for Err and not for the cause.
type deadlined struct{ context.Context }

// Err implements context.Context.
func (d deadlined) Err() error {
	if d.Context.Err() != nil && context.Cause(d.Context) != context.Canceled { //nolint:errorlint // the very value
		return context.DeadlineExceeded
	}
	return d.Context.Err()
}

// For is how long work may take that takes need on an idle machine, by the load of
// this moment. Context is better where it can be had.
func For(need time.Duration) time.Duration { return time.Duration(float64(need) * pace.Load()) }
