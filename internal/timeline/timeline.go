// Package timeline passes the durations of a call's steps to the tracer of the call. Without a tracer nothing is
// measured or sent.
package timeline

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The most steps of a call, and parts of a step.
const (
	MaxSteps = 32
	MaxParts = 16
)

// Step is one step of a call.
type Step struct {
	Name  string
	Begin time.Time
	Took  time.Duration
	Parts []Part // one after the other; Took includes the gaps between them
}

// Part is one part of a step.
type Part struct {
	Name string
	Took time.Duration
}

// Recorder stores the steps of a call. It is safe for concurrent use. A nil Recorder does nothing.
type Recorder struct {
	mu    sync.Mutex
	steps []Step
}

type key struct{}

// With returns a context with a Recorder for the steps of calls with that context.
func With(ctx context.Context) (context.Context, *Recorder) {
	r := &Recorder{}
	return context.WithValue(ctx, key{}, r), r
}

// From returns ctx's Recorder, nil if there is none.
func From(ctx context.Context) *Recorder {
	r, _ := ctx.Value(key{}).(*Recorder)
	return r
}

// Carry returns to with the Recorder of from.
func Carry(to, from context.Context) context.Context {
	if r := From(from); r != nil {
		return context.WithValue(to, key{}, r)
	}
	return to
}

// Add adds steps, up to MaxSteps.
func (r *Recorder) Add(steps ...Step) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, steps[:min(len(steps), MaxSteps-len(r.steps))]...)
}

// Steps returns the steps so far.
func (r *Recorder) Steps() []Step {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.steps)
}

// Within sanitises steps from an untrusted source. Names must be known, steps must start and end between begin and end,
// and parts must fit into their steps. Steps and parts with other names are dropped.
func Within(steps []Step, begin, end time.Time, known func(name string) bool) []Step {
	var fit []Step
	for _, s := range steps[:min(len(steps), MaxSteps)] {
		if !known(s.Name) {
			continue
		}
		if s.Begin.Before(begin) || s.Begin.After(end) {
			s.Begin = begin
		}
		s.Took = min(max(s.Took, 0), end.Sub(s.Begin))
		s.Parts = parts(s.Parts, s.Took, known)
		fit = append(fit, s)
	}
	return fit
}

func parts(all []Part, left time.Duration, known func(name string) bool) (fit []Part) {
	for _, p := range all[:min(len(all), MaxParts)] {
		if known(p.Name) {
			p.Took = min(max(p.Took, 0), left)
			left -= p.Took
			fit = append(fit, p)
		}
	}
	return fit
}
