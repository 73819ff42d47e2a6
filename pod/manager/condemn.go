package manager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Verdict is why a pod is ended that was not done: its status is Failed with it.
type Verdict struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Own: the pod has itself broken a limit of its own. Any other end is a disruption, which the condition
	// DisruptionTarget tells of.
	Own bool `json:"own,omitempty"`
	// Passing: the reason is one that passes, and the pod is to run again then.
	Passing bool `json:"passing,omitempty"`
	// Time is when it was spoken. Condemn sets it.
	Time metav1.Time `json:"time"`
}

// Condemn ends the pod within grace, in seconds, as Stop does, for a reason that its status tells. The first reason
// stays. With a ctx that has ended nothing is done.
func (p *Pod) Condemn(ctx context.Context, grace int64, why Verdict) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("end pod %s: %w", p.Key(), err)
	}
	p.mu.Lock()
	if p.rec.Ended == nil && p.rec.Verdict == nil {
		why.Time = metav1.Now()
		p.rec.Verdict = &why // Stop writes it down
	}
	p.mu.Unlock()
	return p.Stop(ctx, &grace)
}

// Verdict is why the pod was condemned, nil for one that was not. It must not be changed.
func (p *Pod) Verdict() *Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec.Verdict
}

// over lays the verdict over the status of a pod.
func (v *Verdict) over(status *corev1.PodStatus, ended bool) {
	if v == nil {
		return
	}
	status.Reason, status.Message = v.Reason, v.Message
	if ended || status.Phase == corev1.PodSucceeded { // its containers may all have ended well before the pod has
		status.Phase = corev1.PodFailed
	}
	if v.Own {
		return
	}
	status.Conditions = append(status.Conditions[:len(status.Conditions):len(status.Conditions)], corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonTerminationByKubelet, Message: v.Message,
		LastTransitionTime: v.Time, ObservedGeneration: status.ObservedGeneration,
	})
}
