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

// Verdict is the outcome of the probes of one run of a container.
type Verdict struct {
	// Started: there is no startup probe, or it has succeeded.
	Started bool `json:"started"`
	// Ready: Started, and the readiness probe, if any, succeeds.
	Ready bool `json:"ready"`
	// Failed is the probe with a failure that must kill the container, Startup or Liveness; else empty. It is final.
	Failed Kind `json:"-"`
	// Ending: the container is being stopped, or was stopped, for a restart. The Prober leaves it to its caller.
	Ending bool `json:"ending,omitempty"`
}

// Options describe one run of a container and the receivers of its results.
type Options struct {
	Container *corev1.Container
	// Probe runs one probe; see Target.Ask.
	Probe func(ctx context.Context, probe *corev1.Probe) (Result, string, error)
	// Began is when the run began.
	Began time.Time
	// Resumed means that the run began before this Prober, as after a restart of the engine. Its probes start spread
	// over their periods. Last is the earlier verdict, nil for none; its Failed is ignored.
	Resumed bool
	Last    *Verdict
	// Stalls returns how often the container's VM has been paused, and whether it is paused now. Probe results across a
	// pause do not count. Nil means never.
	Stalls func() (times uint64, now bool)
	// Changed is called after each change of the Verdict, and Event with each warning for the pod's events, with the
	// kubelet's reasons. They are called from goroutines of Run and may block until its context ends.
	Changed func()
	Event   func(reason, message string)
	// Probed, if set, is called for each probe that counts, with its result and duration. It must not block.
	Probed func(kind Kind, result Result, took time.Duration)
}

// Prober runs the probes of one run of a container. The protocol: New, one Run, any number of Verdict and Quiesce from
// any goroutine.
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

// overdue reports whether a container with an unknown result of its startup probe has run for longer than an
// unsuccessful probe would allow. It does not apply to a container that is known not to have started, because its
// probes may have been interrupted.
func overdue(probe *corev1.Probe, began time.Time) bool {
	once := time.Duration(probe.PeriodSeconds+probe.TimeoutSeconds) * time.Second
	return time.Since(began) > seconds(probe.InitialDelaySeconds)+time.Duration(probe.FailureThreshold+1)*once
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

// Verdict returns the current verdict.
func (p *Prober) Verdict() Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.verdict
}

// Run probes until ctx ends, which should be when the container ends. All its goroutines have ended when it returns.
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

// Quiesce ends the startup and liveness probes, because the pod is about to end. Readiness continues until the
// container has ended.
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

// spread returns a random part of a probe's period, so that not all probes are due together when an engine adopts pods.
func spread(probe *corev1.Probe) time.Duration {
	return time.Duration(rand.Int64N(int64(max(seconds(probe.PeriodSeconds), 1))))
}
