package probe

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// firstLook is the delay after a failed first look at a container. The delay doubles after each further look.
const firstLook = 250 * time.Millisecond

// attempts is how often a probe that returns an error is tried.
const attempts = 3

// worker runs one probe of a container, on one goroutine.
//
// A probe is due each period, for the first time after the initial delay. Startup and readiness probes, and liveness
// probes without a delay, are first due one period later. So a container has failureThreshold periods to start, however
// long a period is. Before that, startup and readiness probes look a few times, because a container may be up after
// half a second. Only a success of those looks counts.
type worker struct {
	p     *Prober
	kind  Kind
	probe *corev1.Probe
	last  Result
	times int // results in a row
}

// probe runs one probe until ctx ends or its result is final.
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
	if kind != Liveness && !resumed && !w.probeEagerly(ctx, timer, due, period) {
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

// first returns when a probe is due for the first time, relative to now. began is a time of day, and a clock that is
// set back later must not delay the probe.
func first(began time.Time, delay time.Duration, now time.Time) time.Time {
	return now.Add(max(delay-max(now.Sub(began), 0), 0))
}

// probeEagerly tries for a first success from begin on, for less than a period. It reports whether to go on.
func (w *worker) probeEagerly(ctx context.Context, timer *time.Timer, begin time.Time, period time.Duration) bool {
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

// once runs the probe, and reports whether to go on. A failure counts only if the probe is due.
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
		result, output, err = w.p.o.Probe(ctx, w.probe)
	}
	if ctx.Err() != nil {
		return false
	}
	if times, stalled := w.p.o.Stalls(); stalled || times != stalls {
		return true
	}
	if due || err == nil && result != Failure {
		w.report(result, err, time.Since(began))
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
	// A container that must be killed, or has started, needs no more probes of this kind.
	return w.kind == Readiness || w.kind == Liveness && result == Success
}

// count adds a result, and reports whether its threshold is reached.
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

// report reports a probe that counts.
func (w *worker) report(result Result, err error, took time.Duration) {
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

// wait returns true at the time due, and false if ctx ends first.
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
