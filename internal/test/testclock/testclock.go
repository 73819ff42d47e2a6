// Package testclock gives tests the times of a clock that was set.
package testclock

import (
	"time"
	"unsafe"
)

// Set returns now as read from a clock that was set forwards by that much (backwards if negative), in whole seconds:
// the wall clock time differs, and the monotonic time is the same. now must be a reading of time.Now outside of a
// bubble of testing/synctest, where times have no monotonic part.
func Set(now time.Time, by time.Duration) time.Time {
	// In the first word of a reading of the clock, one bit marks it as such, 33 bits have seconds, and 30 bits
	// nanoseconds.
	const nanoseconds = 30
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(by/time.Second) << nanoseconds
	return now
}
