package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
	"github.com/bulkhead-project/bulkhead/pod/probe"
	"github.com/bulkhead-project/bulkhead/pod/resize"
)

// CrashLoop is the reason of a container that waits before its restart.
const CrashLoop = "CrashLoopBackOff"

// prefetch pulls the images of all containers that must run and have not run yet, and of those that must start now.
func (p *planner) prefetch() {
	p.volumes()
	for _, c := range p.Containers {
		if c.Newest == nil && p.Wants(c) && p.mayStart(c) {
			p.present(c.Wanted())
		}
	}
	for _, c := range p.next() {
		if p.mayStart(c) {
			p.present(c.Wanted())
		}
	}
}

// starts plans the start of the next container. Containers start one after the other.
func (p *planner) starts() {
	hooked := slices.ContainsFunc(p.Containers, func(c *Container) bool { return c.Hooked })
	for _, c := range p.next() {
		ephemeral := c.Kind == podspec.Ephemeral
		switch {
		case p.Starting != nil:
			return
		case hooked && !ephemeral: // a running postStart hook blocks other starts
		case !c.Tried && p.pulling(c.Wanted()):
			if !ephemeral {
				return // the first starts follow the pod's order
			}
		case !p.mayStart(c) || !p.present(c.Wanted()):
			if !c.Tried && c.Image.Failure != nil {
				p.do(Action{Do: Skip, Container: c})
			}
		case c.Target != "" && p.Target(c) == "":
			p.do(Action{Do: NoTarget, Container: c})
		default:
			p.do(Action{Do: Start, Container: c})
			return
		}
	}
}

// Target returns the id of the running container that shares its processes with c, or "" without one.
func (s *State) Target(c *Container) string {
	for _, other := range s.Containers {
		if other.Spec.Name == c.Target && s.Running(other) {
			return other.Newest.ID()
		}
	}
	return ""
}

// mayStart reports whether c may be started now. If not, its delay is planned.
func (p *planner) mayStart(c *Container) bool {
	late := c.Failure != nil && c.Failure.Reason == CrashLoop
	if c.Newest.Exited() && !c.Outgoing() && p.waits(c.Restart.Until(c.EndedAt())) {
		if !late {
			p.do(Action{Do: Delay, Container: c})
		}
		return false
	}
	return late || !p.waits(c.due())
}

// volumes reports whether the images of all volumes are present, and plans missing pulls.
func (p *planner) volumes() bool {
	all := true
	for _, volume := range p.Pod.Spec.Volumes {
		if from := volume.Image; from != nil {
			all = p.present(Wanted{Image: p.Images[volume.Name], Name: from.Reference, Policy: from.PullPolicy}) && all
		}
	}
	return all
}

// present reports whether an image is present, and else plans a pull.
func (p *planner) present(w Wanted) bool {
	switch {
	case w.Found != nil:
		return true
	case p.pulling(w):
	case p.waits(w.due()):
		if w.Failure.Reason == images.ReasonPull {
			p.do(Action{Do: PullLate, Image: w})
		}
	default:
		p.do(Action{Do: Pull, Image: w})
	}
	return false
}

// pulling reports whether an image is being pulled, or will be by this plan.
func (p *planner) pulling(w Wanted) bool {
	return w.Pulling || slices.Contains(p.out, Action{Do: Pull, Image: w})
}

// files reports whether the volumes of files are written, and plans a write when one is due. Volumes in use are
// rewritten in the background.
func (p *planner) files() bool {
	f := p.Files
	if !f.Needed {
		return true
	}
	if !f.Writing && (!f.Written || f.Stale) && !p.waits(f.due()) {
		p.do(Action{Do: WriteFiles})
	}
	return f.Written
}

// stop plans the next step towards the pod's end. Running steps must end or be undone before the pod can be stopped.
// A request replaces a longer one.
func (p *planner) stop() {
	grace := podspec.Grace(&p.Pod.Spec)
	switch {
	case p.Wanted != nil:
		grace = *p.Wanted
	case p.Stopping != nil:
		grace = *p.Stopping
	}
	switch {
	case p.Starting != nil || p.Busy || p.Files.Writing:
		p.do(Action{Do: GiveUp})
	case p.Stopping == nil || grace < *p.Stopping:
		p.do(Action{Do: Stop, Grace: grace})
	case p.Stopped:
		p.do(Action{Do: End})
	}
}

// Victim is a container that must end.
type Victim struct {
	*Container
	After []*Container // those that must end before it
}

// Order returns the running containers. Each sidecar ends after the regular containers and after the sidecars that
// started after it.
func Order(s *State) []Victim {
	sidecars := s.Of(podspec.Sidecar)
	slices.Reverse(sidecars)
	var out []Victim
	var before []*Container
	for _, c := range append(s.Of(podspec.Ephemeral, podspec.Initial, podspec.Regular), sidecars...) {
		if !s.Running(c) {
			continue
		}
		v := Victim{Container: c}
		if c.Kind == podspec.Sidecar {
			v.After = slices.Clone(before)
		}
		if c.Kind == podspec.Sidecar || c.Kind == podspec.Regular {
			before = append(before, c)
		}
		out = append(out, v)
	}
	return out
}

// sickness returns the event and the grace for a container that has failed a probe.
func (s *State) sickness(c *Container) (why string, grace time.Duration) {
	why = fmt.Sprintf("Container %s failed %s probe", c.Spec.Name, strings.ToLower(string(c.Verdict.Failed)))
	if s.restarted(c, podstatus.CodeLost) {
		why += ", will be restarted"
	}
	spec, grace := c.Spec.LivenessProbe, podspec.Grace(&s.Pod.Spec)
	if c.Verdict.Failed == probe.Startup {
		spec = c.Spec.StartupProbe
	}
	if own := spec.TerminationGracePeriodSeconds; own != nil {
		grace = time.Duration(*own) * time.Second
	}
	return why, grace
}

// Resize is the progress of the pod's latest resize.
type Resize struct {
	Busy     bool
	Actuated int64                               // the generation that all containers have; -1 for none
	Pending  *podstatus.Condition                // it cannot be granted
	Progress *podstatus.Condition                // it is being carried out; with a reason, the last attempt failed
	Reverted bool                                // the runtime refused it; while false, earlier granted changes are still carried out
	Retry    time.Time                           // of a failed resize; zero for none
	Size     *runtimeapi.LinuxContainerResources // of the sandbox, as last sent
}

// resize plans the next step of the pod's resizes.
func (p *planner) resize() {
	if p.Resize.Busy || p.Resize.Reverted {
		return
	}
	changes := p.changes()
	switch {
	case len(changes) > 0:
		if !p.waits(p.Resize.Retry) {
			p.do(Action{Do: Resizing, Resize: p.resizing(changes)})
		}
	case p.Starting != nil || slices.ContainsFunc(p.Containers, (*Container).Outgoing):
		// A container has not been started with its new resources.
	case p.Resize.Progress != nil || p.Resize.Actuated != p.Pod.Generation:
		p.do(Action{Do: Resized})
	}
}

// changes returns the running containers with resources that differ from the runtime's report. A runtime that reports
// none has no changes.
func (p *planner) changes() []resize.Change {
	var out []resize.Change
	for _, c := range p.Of(podspec.Sidecar, podspec.Regular) {
		if !p.Running(c) || p.killing(c) {
			continue
		}
		have := c.Newest.Status.GetResources().GetLinux()
		if have == nil {
			continue
		}
		if one, found := resize.Compare(c.Spec, c.Newest.ID(), have, config.Resources(p.Pod, c.Spec)); found {
			out = append(out, one)
		}
	}
	return out
}

func (p *planner) resizing(changes []resize.Change) *resize.Plan {
	out := &resize.Plan{
		Generation: p.Pod.Generation, Sandbox: p.Sandbox.GetId(),
		Size: config.SandboxResources(p.Pod), Overhead: config.SandboxOverhead(p.Pod),
	}
	out.Grows = out.Size.MemoryLimitInBytes >= p.Resize.Size.GetMemoryLimitInBytes()
	for _, one := range changes {
		if one.Restarts() {
			out.Restarts = append(out.Restarts, one.ID)
		} else {
			out.Changes = append(out.Changes, one)
		}
	}
	return out
}

// Outdated reports whether the newest instance was made from another specification.
func (c *Container) Outdated() bool { return config.Outdated(c.Newest.Status.GetAnnotations(), c.Spec) }
