package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestSleep: a sleep ends after its time, with its context, or with a message.
func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wake := make(chan struct{}, 1)
		wake <- struct{}{}
		for _, test := range []struct {
			ctx  context.Context
			wake chan struct{}
			want bool
			took time.Duration
		}{
			{ctx: t.Context(), want: true, took: time.Minute},
			{ctx: t.Context(), wake: wake, want: true},
			{ctx: short, want: false},
		} {
			began := time.Now()
			if got := Sleep(test.ctx, time.Minute, test.wake); got != test.want || time.Since(began) != test.took {
				t.Errorf("%t after %v, want %t after %v", got, time.Since(began), test.want, test.took)
			}
		}
	})
}
