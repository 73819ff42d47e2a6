package probe

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind is one of a container's probes, as messages name it.
type Kind string

// The kinds.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// Verdict is what the probes of one run of a container have found.
type Verdict struct {
	// Started: there is no startup probe, or it has succeeded.
	Started bool `json:"started"`
	// Ready: it is Started, and there is no readiness probe or that succeeds.
	Ready bool `json:"ready"`
	// Failed is the probe for whose failure the container is to be killed,
	// Startup or Liveness; else empty. It is final.
	Failed Kind `json:"-"`
	// Ending: it is being ended, or has been, in order to be started anew. No
	// Prober says so, but who ends it.
	Ending bool `json:"ending,omitempty"`
}

// Options describe one run of a container and who wants to know about it.
type Options struct {
	Container *corev1.Container
	// Ask carries out one probe; see Target.Ask.
	Ask func(ctx context.Context, probe *corev1.Probe) (Result, string, error)
	// Began is when the container's run did.
	Began time.Time
	// Resumed says that it had run before anybody probed it here, as after a
	// restart of the engine: its probes begin spread over their periods.
	// Last is what was known then, nil for nothing; its Failed is not looked at.
	Resumed bool
	Last    *Verdict
	// Stalls tells how often the container's machine has been stopped as a
	// whole (paused), and whether it is now: what a probe says across that does
	// not count. Nil is never.
	Stalls func() (times uint64, now bool)
	// Changed is called after each change of the Verdict, and Event with each
	// warning for the pod's events, with the kubelet's reasons. They are called
	// from goroutines of Run and may block until its context ends.
	Changed func()
	Event   func(reason, message string)
	// Probed, if set, is told of each probe that counts: what it found, and how long it took. It must not block.
	Probed func(kind Kind, result Result, took time.Duration)
}

// Prober carries out the probes of one run of a container. The protocol: New,
// one Run, any number of Verdict and Quiesce from any goroutine.
type Prober struct {
	o       Options
	started chan struct{} // closed when Started is set
	quiet   chan struct{}
	once    sync.Once // of Quiesce

	mu      sync.Mutex
	verdict Verdict
}

// New prepares a Prober for a container with defaulted probes.
func New(o Options) *Prober {
	if o.Stalls == nil {
		o.Stalls = func() (uint64, bool) { return 0, false }
	}
	p := &Prober{o: o, started: make(chan struct{}), quiet: make(chan struct{})}
	var last Verdict
	switch {
	case o.Resumed && o.Last != nil:
		last = *o.Last
	case o.Resumed && o.Container.StartupProbe != nil:
		last.Started = overdue(o.Container.StartupProbe, o.Began)
	}
	p.verdict.Started = o.Container.StartupProbe == nil || last.Started
	p.verdict.Ready = p.verdict.Started && (o.Container.ReadinessProbe == nil || last.Ready)
	if p.verdict.Started {
		close(p.started)
	}
	return p
}

// overdue tells whether a container that runs, and of whose startup probe
// nothing is known, has run for longer than it would have without a success. Of
// one that is known not to have started that says nothing: for a part of the time
// nobody may have asked it, or ended it.
func overdue(probe *corev1.Probe, began time.Time) bool {
	once := time.Duration(probe.PeriodSeconds+probe.TimeoutSeconds) * time.Second
	return time.Since(began) > seconds(probe.InitialDelaySeconds)+time.Duration(probe.FailureThreshold+1)*once
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// Verdict is what is known by now.
func (p *Prober) Verdict() Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.verdict
}

// Run probes until ctx ends, which should be when the container does. When it
// returns, none of its goroutines is left.
func (p *Prober) Run(ctx context.Context) {
	dying, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() {
		select {
		case <-p.quiet:
			cancel()
		case <-dying.Done():
		}
	})
	c := p.o.Container
	if c.StartupProbe != nil && !p.Verdict().Started {
		all.Go(func() { p.probe(dying, Startup, c.StartupProbe) })
	}
	if c.LivenessProbe != nil {
		all.Go(func() { p.probe(dying, Liveness, c.LivenessProbe) })
	}
	if c.ReadinessProbe != nil {
		all.Go(func() { p.probe(ctx, Readiness, c.ReadinessProbe) })
	}
	<-ctx.Done()
}

// Quiesce ends the startup and liveness probes, for the pod is about to end:
// readiness is told until the container has ended.
func (p *Prober) Quiesce() { p.once.Do(func() { close(p.quiet) }) }

// set records the result of a probe that has reached its threshold.
func (p *Prober) set(kind Kind, result Result) {
	p.mu.Lock()
	before := p.verdict
	switch good := result != Failure; {
	case kind == Readiness:
		p.verdict.Ready = good
	case !good:
		if p.verdict.Failed == "" {
			p.verdict.Failed = kind
		}
	case kind == Startup && !before.Started:
		p.verdict.Started, p.verdict.Ready = true, p.o.Container.ReadinessProbe == nil
		close(p.started)
	}
	changed := p.verdict != before
	p.mu.Unlock()
	if changed && p.o.Changed != nil {
		p.o.Changed()
	}
}

// spread is a random part of a probe's period, so that not all pods' probes are
// due at once when an engine takes them over.
func spread(probe *corev1.Probe) time.Duration {
	return time.Duration(rand.Int64N(int64(max(seconds(probe.PeriodSeconds), 1))))
}
