package manager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Eviction is the reason for ending a pod from outside. The pod's status is Failed with this reason.
type Eviction struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
	// Own: the pod exceeded its own limit. Any other end is a disruption, and the condition DisruptionTarget reports
	// it.
	Own bool `json:"own,omitempty"`
	// Passing: the reason is temporary, and the pod must run again afterwards.
	Passing bool `json:"passing,omitempty"`
	// Time is the time of the eviction. Evict sets it.
	Time metav1.Time `json:"time"`
}

// Evict ends the pod within grace, in seconds, like Stop, and its status shows the reason. The first reason stays.
// Evict returns an error, and changes nothing, if ctx has already ended.
func (p *Pod) Evict(ctx context.Context, grace int64, why Eviction) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("end pod %s: %w", p.Key(), err)
	}
	p.mu.Lock()
	if p.rec.Ended == nil && p.rec.Eviction == nil {
		why.Time = metav1.Now()
		p.rec.Eviction = &why // Stop saves it
	}
	p.mu.Unlock()
	return p.Stop(ctx, &grace)
}

// Eviction returns why the pod was evicted, nil if it was not. The caller must not change it.
func (p *Pod) Eviction() *Eviction {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rec.Eviction
}

// over applies the eviction to a pod's status.
func (v *Eviction) over(status *corev1.PodStatus, ended bool) {
	if v == nil {
		return
	}
	status.Reason, status.Message = v.Reason, v.Message
	if ended || status.Phase == corev1.PodSucceeded { // its containers may have ended well before the pod
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
