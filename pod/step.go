package pod

import (
	"context"
	"fmt"
	"time"

	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/launch"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// The deadlines of calls to the runtime. The runtime's own deadlines are shorter and give better errors.
const (
	sandboxDeadline   = 6 * time.Minute
	containerDeadline = 2 * time.Minute
	observeDeadline   = 30 * time.Second
)

// Turn is the result of Options.Turn for a pod that has not begun.
type Turn int

const (
	// TurnLater makes the pod wait.
	TurnLater Turn = iota
	// TurnNow lets the pod begin.
	TurnNow
	// TurnNever makes the pod fail with ReasonJobFailed.
	TurnNever
)

const (
	// ReasonJobFailed is the reason in the status of a pod that never began because another pod of its Job failed.
	ReasonJobFailed  = "JobFailed"
	messageJobFailed = "another pod of the Job failed or was stopped before the turn of this one came"

	// ReasonTurn is the reason of the condition PodScheduled while a pod waits for its turn.
	ReasonTurn = "WaitingForTurn"
	// reasonNoTurn is the reason of that condition when such a pod has ended.
	reasonNoTurn   = "NeverScheduled"
	messageStopped = "it was stopped before its turn came"
)

// container is one container of the pod.
type container = plan.Container

// step plans and carries out the next actions.
func (r *run) step(ctx context.Context) {
	r.Wanted = r.p.stopping()
	r.probes.look()
	for _, action := range plan.Plan(&r.State, time.Now()) {
		r.do(ctx, action)
	}
}

func (r *run) do(ctx context.Context, a plan.Action) {
	c := a.Container
	switch a.Do {
	case plan.Wake:
		r.at(a.At)
	case plan.Ask:
		r.ask(ctx)
	case plan.Expire:
		r.Expired = true
		r.event(nil, false, ReasonDeadline, r.overdue())
	case plan.GiveUp:
		for _, giveUp := range r.giveUp {
			giveUp(launch.ErrGivenUp)
		}
	case plan.Stop:
		r.stop(ctx, a.Grace)
	case plan.End:
		r.stopSandbox(ctx, backoff.Last, func(string) { r.Ended = true })
	case plan.StopDead:
		r.stopSandbox(ctx, retryDelay, r.died)
	case plan.Claim:
		r.claim(ctx)
	case plan.MakeSandbox:
		r.createSandbox(ctx)
	case plan.WriteFiles:
		r.write(ctx)
	case plan.Pull:
		r.pull(ctx, a.Image)
	case plan.PullLate:
		r.pullLate(a.Image)
	case plan.Delay:
		r.delayed(c)
	case plan.Skip:
		c.Tried = true
	case plan.NoTarget:
		c.Tried = true
		r.failed(c, launch.ReasonConfig, fmt.Errorf("target container %q is not running", c.Target))
	case plan.Start:
		c.Tried = true
		r.start(ctx, c)
	case plan.Kill:
		c.Failing = c.Newest.ID()
		r.kill(ctx, c, a.Grace, a.Message)
	case plan.Replace:
		c.Replaced = c.Newest.ID()
		r.kill(ctx, c, r.p.grace(), fmt.Sprintf("Container %s definition changed, will be restarted", c.Spec.Name))
	case plan.Resizing:
		r.carryOut(ctx, a.Resize)
	case plan.Resized:
		r.actuated()
	}
}

// ask asks whether the pod's turn has come. The pod's start time is then.
func (r *run) ask(ctx context.Context) {
	switch r.o.Turn() {
	case TurnNow:
		r.Turn.Awaited = false
		r.Began = time.Now()
		r.step(ctx)
	case TurnNever:
		r.Turn.Never = true
		r.event(nil, false, ReasonJobFailed, messageJobFailed)
		r.step(ctx)
	default:
		if !r.Turn.Reported {
			r.Turn.Reported = true
			r.event(nil, false, ReasonTurn, r.turnMessage())
		}
	}
}

// delayed records that c waits before its restart. The event leaves the delay out, so that repetitions count as the
// same event.
func (r *run) delayed(c *container) {
	pod := fmt.Sprintf("%s_%s(%s)", r.Pod.Name, r.Pod.Namespace, r.Pod.UID)
	c.Failure = &plan.Failure{Reason: plan.CrashLoop, At: time.Now(),
		Message: fmt.Sprintf("back-off %v restarting failed container=%s pod=%s", c.Restart.Delay, c.Spec.Name, pod)}
	r.event(c, true, "BackOff", fmt.Sprintf("Back-off restarting failed container %s in pod %s", c.Spec.Name, pod))
}

// event reports an event. Errors of one cause have the same message, so that they count as one event.
func (r *core) event(c *container, warning bool, reason, message string) {
	r.reportEvent(c, warning, reason, probe.Stable(message))
}

// reportEvent reports an event with a complete message, such as the output of a probe.
func (r *core) reportEvent(c *container, warning bool, reason, message string) {
	event := Event{Time: time.Now(), Warning: warning, Reason: reason, Message: message}
	if c != nil {
		event.Container = c.Spec.Name
	}
	r.report(event)
}

func (r *core) report(event Event) {
	if r.o.Event != nil {
		r.o.Event(event)
	}
	r.p.log.Debug("pod event", "reason", event.Reason, "container", event.Container, "message", event.Message)
}
