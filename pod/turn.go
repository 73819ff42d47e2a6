package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// Turn is what Options.Turn says of a pod that has not begun.
type Turn int

const (
	// TurnLater has the pod wait.
	TurnLater Turn = iota
	// TurnNow has the pod begin.
	TurnNow
	// TurnNever has the pod fail, with ReasonJobFailed.
	TurnNever
)

const (
	// ReasonJobFailed is that of the status of a pod that never began, as another pod
	// of its Job failed.
	ReasonJobFailed  = "JobFailed"
	messageJobFailed = "another pod of the Job failed or was stopped before the turn of this one came"

	// ReasonTurn is that of the condition PodScheduled of a pod that waits for its turn.
	ReasonTurn = "WaitingForTurn"
	// reasonNoTurn is that of the condition when such a pod has ended.
	reasonNoTurn   = "NeverScheduled"
	messageStopped = "it was stopped before its turn came"
)

// turn is how far a pod is that has to wait for its turn.
type turn struct {
	awaited bool // it has not come
	told    bool // that it is waited for
	never   bool // it will not come
}

// mayBegin tells whether the pod's turn has come. The pod's time begins with it.
func (r *run) mayBegin(ctx context.Context) bool {
	if !r.turn.awaited {
		return true
	}
	switch r.o.Turn() {
	case TurnNow:
		r.turn.awaited = false
		r.began = time.Now()
		return true
	case TurnNever:
		r.turn.never = true
		r.event(nil, false, ReasonJobFailed, messageJobFailed)
		r.terminate(ctx, nil)
		return false
	}
	if !r.turn.told {
		r.turn.told = true
		r.event(nil, false, ReasonTurn, r.turnMessage())
	}
	return false
}

// turnMessage says what the pod waits for.
func (r *run) turnMessage() string {
	n, limited := podspec.Parallelism(r.pod)
	if !limited {
		return "the pod waits for its turn"
	}
	return fmt.Sprintf("the pod waits for its turn: the Job's parallelism is %d", n)
}

// scheduled is the condition PodScheduled.
func (r *run) scheduled() podstatus.Condition {
	switch {
	case r.turn.awaited && r.ended:
		return podstatus.Condition{Status: corev1.ConditionFalse, Reason: reasonNoTurn}
	case r.turn.awaited:
		return podstatus.Condition{Status: corev1.ConditionFalse, Reason: ReasonTurn, Message: r.turnMessage()}
	}
	return podstatus.Condition{Status: corev1.ConditionTrue}
}

// deadline is when the pod has to end, zero for never.
func (r *run) deadline() time.Time {
	due := r.o.Deadline
	if seconds := r.pod.Spec.ActiveDeadlineSeconds; seconds != nil && !r.turn.awaited {
		own := r.began.Add(time.Duration(*seconds) * time.Second)
		if due.IsZero() || own.Before(due) {
			due = own
		}
	}
	return due
}
