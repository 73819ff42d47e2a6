package pod

import "time"

// The kubelet's delays: between restarts of a container, and between attempts
// to pull an image. The first restart is immediate.
const (
	firstDelay = 10 * time.Second
	lastDelay  = 5 * time.Minute
	// calm is how long after its last restart a container must have run for
	// its delay to begin anew.
	calm = 2 * lastDelay
)

// backoff is the delay before one thing is tried again. The zero value allows
// the first try at once.
type backoff struct {
	delay time.Duration
	last  time.Time // of the last try
}

// until tells when, after an event (a container's end, a failed pull), the next
// try is due.
func (b *backoff) until(event time.Time) time.Time {
	if b.delay == 0 || b.calmed(event) {
		return event
	}
	return event.Add(b.delay)
}

// next records that the try after event is made at now.
func (b *backoff) next(event, now time.Time) {
	if b.delay == 0 || b.calmed(event) {
		b.delay = firstDelay
	} else {
		b.delay = min(2*b.delay, lastDelay)
	}
	b.last = now
}

// calmed tells whether the last try had held when event came.
func (b *backoff) calmed(event time.Time) bool { return event.Sub(b.last) > calm }

// resume rebuilds the delay of a container that was taken over, from how often
// it was restarted, when its last run began and when that ended.
func (b *backoff) resume(restarts int32, began, ended time.Time) {
	if restarts < 1 || ended.Sub(began) > calm {
		return
	}
	b.delay, b.last = firstDelay, began
	for ; restarts > 1 && b.delay < lastDelay; restarts-- {
		b.delay *= 2
	}
	b.delay = min(b.delay, lastDelay)
}
