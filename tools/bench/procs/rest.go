package procs

import (
	"context"
	"fmt"
	"time"
)

// Processes are at rest if they use less than restTicks, plus a part of a tick for each process, in each of
// restWindows windows.
const (
	restWindow  = 350 * time.Millisecond
	restWindows = 2
	restTicks   = 2
)

// Rest waits until all processes below Root are at rest and ready returns nil. If ctx ends first, the error says
// what is not at rest.
func Rest(ctx context.Context, ready func([]Process) error) error {
	last := map[int]uint64{}
	quiet := 0
	var why error
	for {
		all, err := Below(Root())
		if err != nil {
			return err
		}
		used, known := used(all, last)
		limit := restTicks + uint64(len(all))/8
		switch {
		case !known || used > limit:
			quiet, why = 0, fmt.Errorf("%d processes still use %d ticks in %s", len(all), used, restWindow)
		default:
			quiet++
			if why = ready(all); why == nil {
				if quiet >= restWindows {
					return nil
				}
				why = fmt.Errorf("%d processes rest only since %s", len(all), restWindow)
			}
		}
		if err := Wait(ctx, restWindow); err != nil {
			return fmt.Errorf("come to rest: %w: %w", err, why)
		}
	}
}

// used returns the ticks that the processes used since last, and updates last. known is false if last was empty.
// All ticks of a new process count.
func used(all []Process, last map[int]uint64) (ticks uint64, known bool) {
	known = len(last) > 0
	now := map[int]uint64{0: 0}
	for _, p := range all {
		now[p.PID] = p.Ticks
		if before := last[p.PID]; p.Ticks > before {
			ticks += p.Ticks - before
		}
	}
	clear(last)
	for pid, t := range now {
		last[pid] = t
	}
	return ticks, known
}

// Wait waits for a duration, or until ctx ends, and then returns its error.
func Wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
