package ready

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// TestCompareClock: a clock that is far too fast or too slow is detected, however long the answers take. A right one is
// accepted.
func TestCompareClock(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  float64
		delay time.Duration
		wrong bool
	}{
		{"right", 1, 0, false},
		{"right and slow to answer", 1, 200 * time.Millisecond, false},
		{"forty times too fast", 39.9, 0, true},
		{"too fast and slow to answer", 39.9, 200 * time.Millisecond, true},
		{"too slow", 0.2, 0, true},
		{"as fast as it may be", 1.05, 0, false},
		{"as slow as it may be", 0.95, 0, false},
		{"a little too fast", 1.051, 0, true},
		{"a little too slow", 0.949, 0, true},
		{"stands still", 0, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				boot := time.Now()
				err := compareClock(t.Context(), func(context.Context) (agentv1.Pong, error) {
					time.Sleep(c.delay)
					now := time.Since(boot)
					time.Sleep(c.delay)
					return agentv1.Pong{Uptime: time.Duration(float64(now) * c.rate)}, nil
				}, clockSpan)
				if errors.Is(err, ErrClock) != c.wrong || err != nil && !c.wrong {
					t.Errorf("error %v, want an error: %v", err, c.wrong)
				}
			})
		})
	}
	lost := errors.New("lost")
	silent := func(context.Context) (agentv1.Pong, error) { return agentv1.Pong{}, lost }
	if err := compareClock(t.Context(), silent, 0); !errors.Is(err, lost) {
		t.Errorf("a guest that does not answer: %v", err)
	}
}
