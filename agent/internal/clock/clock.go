// Package clock reads and sets the guest's clock.
package clock

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Ping returns the monotonic clock. A host checks the kernel's clock rate with it.
func Ping(context.Context, struct{}) (agentv1.Pong, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return agentv1.Pong{}, fmt.Errorf("clock_gettime: %w", err)
	}
	return agentv1.Pong{Uptime: time.Duration(ts.Nano()), Time: time.Now()}, nil
}

// Set sets the clock.
func Set(_ context.Context, r agentv1.SetTime) error {
	if r.Time.Unix() <= 0 {
		return fmt.Errorf("time %v: %w", r.Time, errdefs.ErrInvalidArgument)
	}
	ts := unix.NsecToTimespec(r.Time.UnixNano())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &ts); err != nil {
		return fmt.Errorf("clock_settime: %w", err)
	}
	return nil
}

// maxSlew is the largest deviation that the kernel corrects gradually, by half a millisecond per second.
const maxSlew = 500 * time.Millisecond

// Adjust corrects the clock.
func Adjust(ctx context.Context, r agentv1.AdjustTime) error {
	if r.By.Abs() >= maxSlew {
		return Set(ctx, agentv1.SetTime{Time: time.Now().Add(r.By)})
	}
	if _, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_OFFSET_SINGLESHOT, Offset: r.By.Microseconds()}); err != nil {
		return fmt.Errorf("adjtimex: %w", err)
	}
	return nil
}
