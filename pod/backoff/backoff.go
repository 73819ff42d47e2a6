// Package backoff implements the kubelet's delays between restarts of a container and between attempts to pull an
// image. The first restart is immediate.
package backoff

import "time"

// The shortest and the longest delay.
const (
	First = 10 * time.Second
	Last  = 5 * time.Minute
)

const (
	// calm is how long a container must have run since its last restart for its delay to start over.
	calm = 2 * Last
)

// Backoff is the delay before a retry. The zero value allows the first try at once.
type Backoff struct {
	Delay time.Duration
	last  time.Time // of the last try
}

// Until returns when the next try is due after event, which is the end of a container or a failed pull.
func (b *Backoff) Until(event time.Time) time.Time {
	if b.Delay == 0 || b.wasCalm(event) {
		return event
	}
	return event.Add(b.Delay)
}

// Next records that the try after event is made at now.
func (b *Backoff) Next(event, now time.Time) {
	if b.Delay == 0 || b.wasCalm(event) {
		b.Delay = First
	} else {
		b.Delay = min(2*b.Delay, Last)
	}
	b.last = now
}

// wasCalm reports whether the last try lasted longer than calm before event.
func (b *Backoff) wasCalm(event time.Time) bool { return event.Sub(b.last) > calm }

// Resume restores the delay of an adopted container from its restart count and the start and end of its last run.
func (b *Backoff) Resume(restarts int32, began, ended time.Time) {
	if restarts < 1 || ended.Sub(began) > calm {
		return
	}
	b.Delay, b.last = First, began
	for ; restarts > 1 && b.Delay < Last; restarts-- {
		b.Delay *= 2
	}
	b.Delay = min(b.Delay, Last)
}
