package probe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// firstLook is how soon a failed first look at a container is followed by
// another, then after twice as long, and so on.
const firstLook = 250 * time.Millisecond

// attempts is how often a probe that could not be carried out is tried at once.
const attempts = 3

// worker carries out one probe of a container, on one goroutine.
//
// A probe is due each period, for the first time when the initial delay is over
// (liveness) or a period later: failureThreshold periods are then what a
// container has to start, however long its period. Before that, startup and
// readiness are looked at a few times, so that nobody waits for a period for a
// container that is up after half a second. Only a success of those looks counts.
type worker struct {
	p     *Prober
	kind  Kind
	probe *corev1.Probe
	last  Result
	times int // how often in a row
}

// probe runs one probe until ctx ends or nothing is left to find out.
func (p *Prober) probe(ctx context.Context, kind Kind, probe *corev1.Probe) {
	w := &worker{p: p, kind: kind, probe: probe}
	resumed := p.o.Resumed
	if kind != Startup {
		select {
		case <-p.started:
		default:
			resumed = false
			select {
			case <-p.started:
			case <-ctx.Done():
				return
			}
		}
	}
	period := max(seconds(probe.PeriodSeconds), time.Second)
	due := first(p.o.Began, seconds(probe.InitialDelaySeconds), time.Now())
	if resumed {
		due = later(due, time.Now().Add(spread(probe)))
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	if kind == Liveness && !resumed && probe.InitialDelaySeconds == 0 {
		due = due.Add(period)
	}
	if kind != Liveness && !resumed && !w.look(ctx, timer, due, period) {
		return
	} else if kind != Liveness && !resumed {
		due = due.Add(period)
	}
	for ; wait(ctx, timer, due); due = later(due.Add(period), time.Now()) {
		if !w.once(ctx, true) {
			return
		}
	}
}

// first is when a probe is due for the first time. It is so much after now: the time at which a container began is one of
// the day, and a clock that is set back later must not put off what is due.
func first(began time.Time, delay time.Duration, now time.Time) time.Time {
	return now.Add(max(delay-max(now.Sub(began), 0), 0))
}

// look looks for a first success from begin on, for less than a period, and
// tells whether to go on.
func (w *worker) look(ctx context.Context, timer *time.Timer, begin time.Time, period time.Duration) bool {
	due := begin
	for delay := firstLook; due.Before(begin.Add(period)); delay *= 2 {
		if !wait(ctx, timer, due) || !w.once(ctx, false) {
			return false
		}
		if w.last == Success {
			break
		}
		due = later(due.Add(delay), time.Now())
	}
	return true
}

// once carries the probe out, and tells whether to go on. What is not due is a
// look: its failure is nobody's.
func (w *worker) once(ctx context.Context, due bool) bool {
	stalls, stalled := w.p.o.Stalls()
	if stalled {
		return true
	}
	var result Result
	var output string
	var err error
	began := time.Now()
	for try := 0; try == 0 || err != nil && try < attempts && ctx.Err() == nil; try++ {
		result, output, err = w.p.o.Ask(ctx, w.probe)
	}
	if ctx.Err() != nil {
		return false
	}
	if times, stalled := w.p.o.Stalls(); stalled || times != stalls {
		return true
	}
	if due || err == nil && result != Failure {
		w.tell(result, err, time.Since(began))
	}
	if result == Warning {
		w.event("ProbeWarning", fmt.Sprintf("%s probe warning: %s", w.kind, Line(output)))
		result = Success
	}
	switch {
	case err != nil:
		if due {
			w.event("Unhealthy", fmt.Sprintf("%s probe errored and resulted in %s state: %s", w.kind, Unknown, Line(Stable(err.Error()))))
		}
		return true
	case result == Failure && !due:
		return true
	case result == Failure:
		w.event("Unhealthy", fmt.Sprintf("%s probe failed: %s", w.kind, Line(output)))
	}
	if !w.count(result) {
		return true
	}
	w.p.set(w.kind, result)
	// A container that is to be killed is left alone, one that has started has
	// nothing more to prove.
	return w.kind == Readiness || w.kind == Liveness && result == Success
}

// count adds a result, and tells whether there are enough of it in a row.
func (w *worker) count(result Result) bool {
	if result != w.last {
		w.last, w.times = result, 0
	}
	w.times++
	if result == Failure {
		return w.times >= int(w.probe.FailureThreshold)
	}
	return w.times >= int(w.probe.SuccessThreshold)
}

// tell tells of a probe that counts.
func (w *worker) tell(result Result, err error, took time.Duration) {
	if err != nil {
		result = Unknown
	}
	if w.p.o.Probed != nil {
		w.p.o.Probed(w.kind, result, took)
	}
}

func (w *worker) event(reason, message string) {
	if w.p.o.Event != nil {
		w.p.o.Event(reason, message)
	}
}

// wait returns at the time due, and false when ctx ends before.
func wait(ctx context.Context, timer *time.Timer, due time.Time) bool {
	left := time.Until(due)
	if left <= 0 {
		return ctx.Err() == nil
	}
	timer.Reset(left)
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
