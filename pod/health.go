package pod

import (
	"context"
	"fmt"
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

func newProbes(r *run) *probes { return &probes{r: r, watched: make(map[*container]*watched)} }

// of returns the prober of c's newest instance, nil if it has none (yet).
func (p *probes) of(c *container) *watched {
	if w := p.watched[c]; w != nil && w.id == c.newest.ID() {
		return w
	}
	return nil
}

func (p *probes) started(c *container) bool {
	if c.spec.StartupProbe == nil {
		return true
	}
	w := p.of(c)
	return w != nil && w.Verdict().Started
}

func (p *probes) ready(c *container) bool {
	if c.spec.ReadinessProbe == nil {
		return true
	}
	w := p.of(c)
	return w != nil && w.Verdict().Ready
}

func (p *probes) sick(c *container) (why string, grace time.Duration, yes bool) {
	w := p.of(c)
	if w == nil {
		return "", 0, false
	}
	failed := w.Verdict().Failed
	if failed == "" {
		return "", 0, false
	}
	c.failing = w.id
	why = fmt.Sprintf("Container %s failed %s probe", c.spec.Name, strings.ToLower(string(failed)))
	if podspec.Restarts(p.r.pod, c.kind, c.spec, podstatus.CodeLost, p.r.restarts()) {
		why += ", will be restarted"
	}
	spec, grace := c.spec.LivenessProbe, p.r.p.grace()
	if failed == probe.Startup {
		spec = c.spec.StartupProbe
	}
	if own := spec.TerminationGracePeriodSeconds; own != nil {
		grace = time.Duration(*own) * time.Second
	}
	return why, grace, true
}

// sync starts a prober for each running container with probes, and ends the probers of containers that no longer run.
// Startup and liveness probes end when their pod or container is being stopped.
func (p *probes) sync(ctx context.Context) {
	for _, c := range p.r.containers {
		running := p.r.running(c)
		if w := p.watched[c]; w != nil && (!running || w.id != c.newest.ID()) {
			w.cancel()
			delete(p.watched, c)
		}
		if probed(c.spec) && running && c.hook == nil && p.watched[c] == nil {
			p.watched[c] = p.watch(ctx, c)
		}
		if w := p.watched[c]; w != nil && (p.r.stopping != nil || c.killing == w.id) {
			w.Quiesce()
		}
	}
}

// watch starts to probe c's newest instance.
func (p *probes) watch(runCtx context.Context, c *container) *watched {
	ctx, cancel := context.WithCancel(runCtx)
	id := c.newest.ID()
	began := instance.Time(c.newest.Status.GetStartedAt())
	if now := time.Now(); began.IsZero() || began.After(now) {
		began = now // the runtime's clock may differ from ours
	}
	sandbox, target := c.newest.Sandbox, p.r.target(c)
	options := probe.Options{
		Container: c.spec, Probe: target.Probe, Began: began, Resumed: c.ours != id,
		Changed: func() { p.r.inLoop(ctx, func() {}) },
		Event:   func(reason, message string) { p.r.inLoop(ctx, func() { p.r.reportEvent(c, true, reason, message) }) },
	}
	if probed := p.r.o.Probed; probed != nil {
		options.Probed = func(kind probe.Kind, result probe.Result, took time.Duration) {
			probed(c.spec.Name, kind, result, took)
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

// started reports whether c runs, its postStart hook has succeeded and its startup probe has succeeded.
func (r *run) started(c *container) bool {
	return r.running(c) && c.hook == nil && c.killing != c.newest.ID() && r.probes.started(c)
}

// isReady reports whether c is ready. An init container is ready when it has succeeded, any other when it serves.
func (r *run) isReady(c *container) bool {
	switch c.kind {
	case podspec.Initial:
		return c.newest.Exited() && c.newest.Status.GetExitCode() == 0
	case podspec.Ephemeral:
		return false
	}
	return r.started(c) && r.probes.ready(c)
}

// checkHealth stops containers that failed a probe, and the hooks of containers that have ended.
func (r *run) checkHealth(ctx context.Context) {
	for _, c := range r.containers {
		if !r.running(c) {
			c.hook.stop()
			continue
		}
		if why, grace, yes := r.probes.sick(c); yes {
			r.kill(ctx, c, grace, why)
		}
	}
}

// Remembers reports whether a pod has state that the CRI does not hold: results of probes, or restarts for a resize.
func Remembers(pod *corev1.Pod) bool {
	return podspec.Any(&pod.Spec, func(c *corev1.Container) bool {
		return probed(c) || slices.ContainsFunc(c.ResizePolicy, requiresRestart)
	})
}

func probed(c *corev1.Container) bool {
	return c.StartupProbe != nil || c.LivenessProbe != nil || c.ReadinessProbe != nil
}

func requiresRestart(policy corev1.ContainerResizePolicy) bool {
	return policy.RestartPolicy == corev1.RestartContainer
}

// Remembers is Remembers for the pod itself.
func (p *Pod) Remembers() bool { return Remembers(p.pod) }

// Verdicts returns the probe results of the running containers, and marks those that are being stopped for a restart.
// The keys are CRI ids. Options.Last takes it when the next Run adopts the pod. The verdicts change with the status.
func (p *Pod) Verdicts() map[string]probe.Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make(map[string]probe.Verdict)
	for _, list := range [][]corev1.ContainerStatus{p.status.InitContainerStatuses, p.status.ContainerStatuses} {
		for _, c := range list {
			if _, id, found := strings.Cut(c.ContainerID, "://"); found && c.State.Running != nil {
				out[id] = probe.Verdict{Started: c.Started != nil && *c.Started, Ready: c.Ready}
			}
		}
	}
	for id := range p.ending {
		verdict := out[id]
		verdict.Ending = true
		out[id] = verdict
	}
	return out
}
