package retry

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

var errFailed = errors.New("failed")

// fails counts calls, and fails the first of them.
type fails struct {
	began time.Time
	at    []time.Duration // of each call
	first int             // the number of calls that fail
}

func (f *fails) call() error {
	f.at = append(f.at, time.Since(f.began))
	if len(f.at) <= f.first {
		return errFailed
	}
	return nil
}

func seconds(all ...int) (out []time.Duration) {
	for _, one := range all {
		out = append(out, time.Duration(one)*time.Second)
	}
	return out
}

var pauses = Pauses{First: time.Second, Last: 3 * time.Second}

// TestUntil: the pauses grow to the bound, and each error is reported once.
func TestUntil(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, errs := fails{began: time.Now(), first: 4}, 0
		if err := pauses.Until(t.Context(), nil, f.call, func(error) { errs++ }); err != nil {
			t.Errorf("Until: got %v, want nil", err)
		}
		if want := seconds(0, 1, 3, 6, 9); !slices.Equal(f.at, want) || errs != 4 {
			t.Errorf("Until tried at %v and reported %d errors, want %v and 4", f.at, errs, want)
		}
	})
}

// TestUntilWakes: a message ends a pause, and the next pause still grows.
func TestUntilWakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, closed := fails{began: time.Now(), first: 2}, make(chan struct{})
		close(closed)
		wake := func() <-chan struct{} {
			if len(f.at) == 1 {
				return closed
			}
			return nil
		}
		if err := pauses.Until(t.Context(), wake, f.call, func(error) {}); err != nil {
			t.Errorf("Until: got %v, want nil", err)
		}
		if want := seconds(0, 0, 2); !slices.Equal(f.at, want) {
			t.Errorf("Until tried at %v, want %v", f.at, want)
		}
	})
}

// TestUntilEnds: the end of the context ends the pause, and the last error is returned. An error after the end is not
// reported.
func TestUntilEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		f, errs := fails{began: time.Now(), first: 100}, 0
		if err := pauses.Until(ctx, nil, f.call, func(error) { errs++ }); !errors.Is(err, errFailed) {
			t.Errorf("Until: got %v, want %v", err, errFailed)
		}
		if want := seconds(0, 1); !slices.Equal(f.at, want) || errs != 2 {
			t.Errorf("Until tried at %v and reported %d errors, want %v and 2", f.at, errs, want)
		}
		if err := pauses.Until(ctx, nil, f.call, func(error) { errs++ }); !errors.Is(err, errFailed) || errs != 2 {
			t.Errorf("Until after the end: got %v and %d errors, want %v and 2", err, errs, errFailed)
		}
	})
}

// TestLoop: after a success the pauses begin again with the first one, and a message on wake ends a pause.
func TestLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f, wake := fails{began: time.Now()}, make(chan struct{}, 1)
		step := func() error {
			_ = f.call()
			switch len(f.at) {
			case 1, 2, 4:
				return errFailed
			case 5:
				wake <- struct{}{}
			case 6:
				cancel()
				return errFailed
			}
			return nil
		}
		errs := 0
		pauses.Loop(ctx, 10*time.Second, wake, step, func(error) { errs++ })
		if want := seconds(0, 1, 3, 13, 14, 14); !slices.Equal(f.at, want) || errs != 3 {
			t.Errorf("Loop stepped at %v and reported %d errors, want %v and 3", f.at, errs, want)
		}
	})
}
