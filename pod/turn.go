package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/podspec"
	"github.com/bulkhead-project/bulkhead/pod/podstatus"
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

// turn is the state of a pod's wait for its turn.
type turn struct {
	awaited  bool // it has not come
	reported bool // the wait was reported
	never    bool // it will not come
}

// mayBegin reports whether the pod's turn has come. The pod's start time is then.
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
	if !r.turn.reported {
		r.turn.reported = true
		r.event(nil, false, ReasonTurn, r.turnMessage())
	}
	return false
}

// turnMessage returns the reason for the wait.
func (r *run) turnMessage() string {
	n, limited := podspec.Parallelism(r.pod)
	if !limited {
		return "the pod waits for its turn"
	}
	return fmt.Sprintf("the pod waits for its turn: the Job's parallelism is %d", n)
}

// scheduled returns the condition PodScheduled.
func (r *run) scheduled() podstatus.Condition {
	switch {
	case r.turn.awaited && r.ended:
		return podstatus.Condition{Status: corev1.ConditionFalse, Reason: reasonNoTurn}
	case r.turn.awaited:
		return podstatus.Condition{Status: corev1.ConditionFalse, Reason: ReasonTurn, Message: r.turnMessage()}
	}
	return podstatus.Condition{Status: corev1.ConditionTrue}
}

// deadline returns when the pod must end, zero for never.
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
