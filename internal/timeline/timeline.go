// Package timeline carries what the steps of a call took from where they are taken to who
// traces the call. Nobody measures or sends anything for a call that nobody traces.
package timeline

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The most steps that are kept of a call, and parts of a step.
const (
	MaxSteps = 32
	MaxParts = 16
)

// Step is one of a call's.
type Step struct {
	Name  string
	Begin time.Time
	Took  time.Duration
	Parts []Part // one after the other; what is missing to Took is between them
}

// Part is one of a step's.
type Part struct {
	Name string
	Took time.Duration
}

// Recorder keeps the steps of a call. Its methods may be called at once, and do nothing on
// nil, which is nobody's.
type Recorder struct {
	mu    sync.Mutex
	steps []Step
}

type key struct{}

// With has what is done with the context it returns tell its steps.
func With(ctx context.Context) (context.Context, *Recorder) {
	r := &Recorder{}
	return context.WithValue(ctx, key{}, r), r
}

// From is who wants to know the steps of what is done with ctx, nil if nobody does.
func From(ctx context.Context) *Recorder {
	r, _ := ctx.Value(key{}).(*Recorder)
	return r
}

// Carry has what is done with to tell its steps to whom from's are told.
func Carry(to, from context.Context) context.Context {
	if r := From(from); r != nil {
		return context.WithValue(to, key{}, r)
	}
	return to
}

// Add adds steps, those up to MaxSteps.
func (r *Recorder) Add(steps ...Step) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, steps[:min(len(steps), MaxSteps-len(r.steps))]...)
}

// Steps are those so far.
func (r *Recorder) Steps() []Step {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.steps)
}

// Within makes steps that somebody hostile tells of fit to be believed: of names that known
// knows, begun and ended between begin and end, with parts that take no longer than they do.
// A step or a part of another name is dropped.
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
