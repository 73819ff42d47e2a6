package testclock

import (
	"testing"
	"time"
)

// TestSet: the wall clock time differs, and durations do not.
func TestSet(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0, 400 * 24 * time.Hour} {
		set := Set(now, by)
		if got := set.Round(0).Sub(now.Round(0)); got != by {
			t.Errorf("by %v: the time of day is %v off", by, got)
		}
		if got := set.Sub(now); got != 0 {
			t.Errorf("by %v: %v have passed", by, got)
		}
	}
}
