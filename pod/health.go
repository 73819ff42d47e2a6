package pod

import (
	"context"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// probes holds the probers of a pod's containers. Only the goroutine of Run uses it; the probers run on their own.
type probes struct {
	r       *run
	watched map[*container]*watched
}

// watched is the prober of one instance of a container.
type watched struct {
	*probe.Prober
	id     string
	cancel context.CancelFunc
}

// look reads the verdicts.
func (p *probes) look() {
	for _, c := range p.r.Containers {
		c.Verdict = probe.Verdict{}
		if w := p.watched[c]; w != nil && w.id == c.Newest.ID() {
			c.Verdict = w.Verdict()
		}
	}
}

// sync starts a prober for each running container with probes, and ends the probers of containers that no longer run.
// Startup and liveness probes end when their pod or container is being stopped. postStart hooks end with their container.
func (p *probes) sync(ctx context.Context) {
	for _, c := range p.r.Containers {
		running := p.r.Running(c)
		if !running {
			p.r.stopHook(c)
		}
		if w := p.watched[c]; w != nil && (!running || w.id != c.Newest.ID()) {
			w.cancel()
			delete(p.watched, c)
		}
		if probed(c.Spec) && running && !c.Hooked && p.watched[c] == nil {
			p.watched[c] = p.watch(ctx, c)
		}
		if w := p.watched[c]; w != nil && (p.r.Stopping != nil || c.Killing == w.id) {
			w.Quiesce()
		}
	}
	p.look()
}

// watch starts to probe c's newest instance.
func (p *probes) watch(runCtx context.Context, c *container) *watched {
	ctx, cancel := context.WithCancel(runCtx)
	id := c.Newest.ID()
	began := instance.Time(c.Newest.Status.GetStartedAt())
	if now := time.Now(); began.IsZero() || began.After(now) {
		began = now // the runtime's clock may differ from ours
	}
	sandbox, target := c.Newest.Sandbox, p.r.target(c)
	options := probe.Options{
		Container: c.Spec, Probe: target.Probe, Began: began, Resumed: c.Ours != id,
		Changed: func() { p.r.inLoop(ctx, func() {}) },
		Event:   func(reason, message string) { p.r.inLoop(ctx, func() { p.r.reportEvent(c, true, reason, message) }) },
	}
	if probed := p.r.o.Probed; probed != nil {
		options.Probed = func(kind probe.Kind, result probe.Result, took time.Duration) {
			probed(c.Spec.Name, kind, result, took)
		}
	}
	if last, known := p.r.o.Last[id]; known {
		options.Last = &last
	}
	if p.r.o.Pauses != nil {
		options.Stalls = func() (uint64, bool) { return p.r.o.Pauses(sandbox) }
	}
	w := &watched{Prober: probe.New(options), id: id, cancel: cancel}
	p.r.work.Go(func() { w.Run(ctx) })
	return w
}

// Remembers reports whether a pod has state that the CRI does not hold: results of probes, or restarts for a resize.
func Remembers(pod *corev1.Pod) bool {
	return podspec.Any(&pod.Spec, func(c *corev1.Container) bool {
		return probed(c) || slices.ContainsFunc(c.ResizePolicy, func(policy corev1.ContainerResizePolicy) bool {
			return policy.RestartPolicy == corev1.RestartContainer
		})
	})
}

func probed(c *corev1.Container) bool {
	return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
}

// Remembers is Remembers for the pod itself.
func (p *Pod) Remembers() bool { return Remembers(p.pod) }

// Verdicts returns the probe results of the running containers, and marks those that are being stopped for a restart.
// The keys are CRI ids. Options.Last takes it when the next Run adopts the pod. The verdicts change with the status.
func (p *Pod) Verdicts() map[string]probe.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]probe.Verdict)
	for c := range podstatus.Every(&p.status) {
		_, id, found := strings.Cut(c.ContainerID, "://")
		if found && c.State.Running != nil && c.Started != nil { // an ephemeral container has no probes
			out[id] = probe.Verdict{Started: *c.Started, Ready: c.Ready}
		}
	}
	for id := range p.ending {
		verdict := out[id]
		verdict.Ending = true
		out[id] = verdict
	}
	return out
}
