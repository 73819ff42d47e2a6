// Package testclock gives tests the times that a clock tells which somebody has set.
package testclock

import (
	"time"
	"unsafe"
)

// Set is now by a clock that was set forwards by that much, backwards if it is negative, in whole seconds: what tells
// the time of day is another one, and what only passes is the same. Now must be a reading of time.Now outside of a
// bubble of testing/synctest, where no time has what only passes.
func Set(now time.Time, by time.Duration) time.Time {
	// A time's first word has, of a reading of the clock, one bit that says so, 33 of seconds, and 30 of nanoseconds.
	const nanoseconds = 30
	wall := (*uint64)(unsafe.Pointer(&now))
	*wall += uint64(by/time.Second) << nanoseconds
	return now
}
