// Package backoff has the kubelet's delays: between restarts of a container, and
// between attempts to pull an image. The first restart is immediate.
package backoff

import "time"

// The shortest delay and the longest.
const (
	First = 10 * time.Second
	Last  = 5 * time.Minute
)

const (
	// calm is how long after its last restart a container must have run for
	// its delay to begin anew.
	calm = 2 * Last
)

// Backoff is the delay before one thing is tried again. The zero value allows
// the first try at once.
type Backoff struct {
	Delay time.Duration
	last  time.Time // of the last try
}

// Until tells when, after an event (a container's end, a failed pull), the next
// try is due.
func (b *Backoff) Until(event time.Time) time.Time {
	if b.Delay == 0 || b.calmed(event) {
		return event
	}
	return event.Add(b.Delay)
}

// Next records that the try after event is made at now.
func (b *Backoff) Next(event, now time.Time) {
	if b.Delay == 0 || b.calmed(event) {
		b.Delay = First
	} else {
		b.Delay = min(2*b.Delay, Last)
	}
	b.last = now
}

// calmed tells whether the last try had held when event came.
func (b *Backoff) calmed(event time.Time) bool { return event.Sub(b.last) > calm }

// Resume rebuilds the delay of a container that was taken over, from how often
// it was restarted, when its last run began and when that ended.
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
