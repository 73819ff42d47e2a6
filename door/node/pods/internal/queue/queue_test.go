package queue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestRun: keys from before Run are worked on, a failed key is retried after a growing pause, and Run returns after the
// work that the end of its context interrupts.
func TestRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := New[string](time.Second, 2*time.Second)
		q.Add("early")
		q.Add("fails")
		began := time.Now()
		var early, failed, ended atomic.Int64
		var at []time.Duration // of the tries of fails
		work := func(ctx context.Context, key string) error {
			switch key {
			case "early":
				early.Add(1)
			case "fails":
				if at = append(at, time.Since(began)); len(at) < 4 {
					return errors.New("not yet")
				}
			case "long":
				<-ctx.Done()
				ended.Add(1)
				return ctx.Err()
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan struct{})
		go func() {
			defer close(done)
			q.Run(ctx, 2, work, func(string, error) { failed.Add(1) })
		}()
		time.Sleep(time.Minute)
		if early.Load() != 1 || failed.Load() != 3 {
			t.Errorf("%d calls for early and %d reported errors, want 1 and 3", early.Load(), failed.Load())
		}
		q.Add("long")
		synctest.Wait()
		cancel()
		<-done
		if ended.Load() != 1 || failed.Load() != 3 {
			t.Errorf("%d interrupted calls and %d reported errors, want 1 and 3", ended.Load(), failed.Load())
		}
		if len(at) != 4 || at[1] != time.Second || at[2] != 3*time.Second || at[3] != 5*time.Second {
			t.Errorf("fails was tried at %v, want 0, 1, 3 and 5 s", at)
		}
	})
}
