// Package retry repeats work, with pauses that grow while it fails.
package retry

import (
	"context"
	"time"
)

// Pauses are the pauses after failures. Each is twice as long as the one before, from First to at most Last. Pauses is
// not safe for concurrent use. Until and Loop work on a copy, which begins with First.
type Pauses struct {
	First, Last time.Duration

	next time.Duration // 0 means First
}

// Next returns the next pause.
func (p *Pauses) Next() time.Duration {
	now := max(p.next, p.First)
	p.next = min(2*now, p.Last)
	return now
}

// Reset makes the next pause First.
func (p *Pauses) Reset() { p.next = 0 }

// Until calls try until it succeeds or ctx ends, and returns its last error. It calls try at least once. It calls
// failed, if set, with each error before the pause. A message on the channel of wake, if wake is set, ends the pause.
func (p Pauses) Until(ctx context.Context, wake func() <-chan struct{}, try func() error, failed func(error)) error {
	for p.Reset(); ; {
		err := try()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if failed != nil {
			failed(err)
		}
		var woken <-chan struct{}
		if wake != nil {
			woken = wake()
		}
		if !Sleep(ctx, p.Next(), woken) {
			return err
		}
	}
}

// Loop calls step until ctx ends: after each interval, and at once after a message on wake, which may be nil. After an
// error it calls failed, and waits for the next pause in place of the interval.
func (p Pauses) Loop(ctx context.Context, interval time.Duration, wake <-chan struct{}, step func() error, failed func(error)) {
	for wait := interval; ; wait = interval {
		err := step()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			p.Reset()
		default:
			failed(err)
			wait = p.Next()
		}
		if !Sleep(ctx, wait, wake) {
			return
		}
	}
}

// Sleep waits for d or until it receives from wake, which may be nil. It returns false if ctx has ended.
func Sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}
