// Package plan decides what a pod needs next. It makes no calls and changes nothing.
package plan

import (
	"slices"
	"time"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/resize"
)

// Verb is the kind of an action.
type Verb string

// The verbs. Those with a container name it in Action.Container.
const (
	Wake   Verb = "wake"    // Plan again at At
	Ask    Verb = "ask"     // ask whether the pod's turn has come
	Expire Verb = "expire"  // the deadline has passed
	GiveUp Verb = "give up" // cancel the start of a sandbox, of volumes and of a container
	Stop   Verb = "stop"    // stop all containers within Grace, in the order of Order
	End    Verb = "end"     // stop the sandbox, if there is one; the pod has then ended

	StopDead    Verb = "stop dead" // stop the dead sandbox
	Claim       Verb = "claim"     // mount the claims
	MakeSandbox Verb = "make sandbox"
	WriteFiles  Verb = "write files"

	Pull     Verb = "pull"       // find or pull Image
	PullLate Verb = "pull late"  // record that the pull of Image waits after a failure
	Delay    Verb = "delay"      // record that the restart waits
	Skip     Verb = "skip"       // let later containers start before this one
	NoTarget Verb = "no target"  // the container of Target does not run
	Start    Verb = "start"      // create and start the next instance
	Kill     Verb = "kill"       // stop the instance within Grace: a probe has failed
	Replace  Verb = "replace"    // stop the instance: its image has changed
	Resizing Verb = "resize"     // carry out Resize
	Resized  Verb = "resize end" // all containers have the resources of their specification
)

// Action is one step of the pod's loop. Its result changes the State for the next Plan.
type Action struct {
	Do        Verb
	Container *Container
	Image     Wanted
	At        time.Time
	Grace     time.Duration
	Message   string
	Resize    *resize.Plan
}

// Plan returns the next actions for the pod, in order.
func Plan(s *State, now time.Time) []Action {
	p := &planner{State: s, now: now}
	if !s.Ended {
		p.pod()
	}
	return p.out
}

// planner makes one plan.
type planner struct {
	*State
	now time.Time
	out []Action
}

// do adds an action, once.
func (p *planner) do(a Action) {
	if !slices.Contains(p.out, a) {
		p.out = append(p.out, a)
	}
}

// waits reports whether due is in the future, and plans to wake then.
func (p *planner) waits(due time.Time) bool {
	if !p.now.Before(due) {
		return false
	}
	p.do(Action{Do: Wake, At: due})
	return true
}

func (p *planner) pod() {
	expired := p.expires()
	if expired {
		p.do(Action{Do: Expire})
	}
	if expired || p.Expired || p.Wanted != nil || p.Stopping != nil || p.Fatal != nil || p.Turn.Never {
		p.stop()
		return
	}
	if !p.observable() {
		return
	}
	if p.over() {
		p.stop()
		return
	}
	if p.Turn.Awaited {
		p.do(Action{Do: Ask})
		return
	}
	ready := p.sandbox()
	p.prefetch()
	if !ready {
		return
	}
	p.health()
	p.resize()
	p.replace()
	if p.files() && p.volumes() {
		p.starts()
	}
}

// expires reports whether the pod's deadline has just passed. This includes a pod that has ended after its deadline
// while no engine ran, or before the engine could report it.
func (p *planner) expires() bool {
	due := p.due()
	if due.IsZero() || p.Expired || p.Stopping != nil {
		return false
	}
	if p.over() {
		return !p.lastEnd().Before(due)
	}
	return !p.waits(due)
}

// observable reports whether the containers' states are reliable. The containers of a dead sandbox are dead, whatever
// state the runtime reports. So each dead sandbox is stopped once, and the pod is then observed again.
func (p *planner) observable() bool {
	switch {
	case p.Starting != nil && (!p.Ready() || p.Sandbox.GetId() != p.Starting.Sandbox):
		p.do(Action{Do: GiveUp})
		return false
	case p.Sandbox == nil || p.Ready() || p.Busy || p.Sandbox.GetId() == p.Dead:
		return !p.Busy
	}
	p.do(Action{Do: StopDead})
	return false
}

// sandbox reports whether the pod's sandbox is up, and else plans its creation.
func (p *planner) sandbox() bool {
	switch {
	case p.Ready():
		return true
	case p.waits(p.SandboxTry.due()):
	case p.Claims.Mounted:
		p.do(Action{Do: MakeSandbox})
	case !p.waits(p.Claims.Retry):
		p.do(Action{Do: Claim})
	}
	return false
}

// health stops containers that have failed a probe.
func (p *planner) health() {
	for _, c := range p.Containers {
		id := c.Newest.ID()
		if p.Running(c) && c.Verdict.Failed != "" && (c.Killing != id || c.Failing != id) {
			message, grace := p.sickness(c)
			p.do(Action{Do: Kill, Container: c, Grace: grace, Message: message})
		}
	}
}

// killing reports whether the newest instance of c is being stopped, or will be by this plan.
func (p *planner) killing(c *Container) bool {
	return c.Killing == c.Newest.ID() || slices.ContainsFunc(p.out, func(a Action) bool { return a.Do == Kill && a.Container == c })
}

// replace restarts containers that run with an outdated image.
func (p *planner) replace() {
	for _, c := range p.Of(podspec.Sidecar, podspec.Regular) {
		if p.Running(c) && c.Outdated() && !p.killing(c) {
			p.do(Action{Do: Replace, Container: c})
		}
	}
}
