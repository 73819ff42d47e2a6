package runner

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// condition returns the status and reason of a condition, or "" if it is not set.
func condition(status *corev1.PodStatus, kind corev1.PodConditionType) (is corev1.ConditionStatus, reason string) {
	for _, c := range status.Conditions {
		if c.Type == kind {
			return c.Status, c.Reason
		}
	}
	return "", ""
}

// TestReadinessGates: a pod with a readiness gate is ready while its containers are ready and the API server shows the
// gate's condition as true. Each change of that condition is reported.
func TestReadinessGates(t *testing.T) {
	const gate, other = corev1.PodConditionType("example.org/gate"), corev1.PodConditionType("example.org/other")
	inWorld(t, func(t *testing.T, w *world) {
		p := spec("p", uid)
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
		w.there = uid
		if err := w.Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, tt := range []struct {
			name   string
			others []corev1.PodCondition
			gate   corev1.ConditionStatus // the reported status
			ready  corev1.ConditionStatus
			reason string
		}{
			{name: "no condition is set", ready: corev1.ConditionFalse, reason: "ReadinessGatesNotReady"},
			{
				name:   "another condition is true",
				others: []corev1.PodCondition{{Type: other, Status: corev1.ConditionTrue}},
				ready:  corev1.ConditionFalse, reason: "ReadinessGatesNotReady",
			},
			{
				name:   "the gate's is false",
				others: []corev1.PodCondition{{Type: gate, Status: corev1.ConditionFalse}},
				gate:   corev1.ConditionFalse, ready: corev1.ConditionFalse, reason: "ReadinessGatesNotReady",
			},
			{
				name:   "it is true",
				others: []corev1.PodCondition{{Type: other, Status: corev1.ConditionFalse}, {Type: gate, Status: corev1.ConditionTrue}},
				gate:   corev1.ConditionTrue, ready: corev1.ConditionTrue,
			},
			{
				name:   "it is false again",
				others: []corev1.PodCondition{{Type: gate, Status: corev1.ConditionFalse}},
				gate:   corev1.ConditionFalse, ready: corev1.ConditionFalse, reason: "ReadinessGatesNotReady",
			},
		} {
			before, _ := w.Status(uid)
			w.conditions = tt.others
			w.changes.Store(0)
			if err := w.Update(t.Context(), p); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			status, _ := w.Status(uid)
			if is, reason := condition(&status, corev1.PodReady); is != tt.ready || reason != tt.reason {
				t.Errorf("%s: ready %s %s", tt.name, is, reason)
			}
			if is, _ := condition(&status, corev1.ContainersReady); is != corev1.ConditionTrue {
				t.Errorf("%s: its containers are ready: %s", tt.name, is)
			}
			if is, _ := condition(&status, gate); is != tt.gate {
				t.Errorf("%s: the gate's condition is %q", tt.name, is)
			}
			was, _ := condition(&before, gate)
			if told := w.changes.Load() > 0; told != (was != tt.gate) {
				t.Errorf("%s: reported %d times", tt.name, w.changes.Load())
			}
		}
		w.stopAndRemove(uid)
	})
}
