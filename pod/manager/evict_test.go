package manager

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
)

// TestEvict: an evicted pod has failed with the reason, whatever its containers did, also for the next manager.
func TestEvict(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		p := w.run(m, Record{Pod: spec("web")})
		over, cancel := context.WithCancel(t.Context())
		cancel()
		err := p.Evict(over, 0, Eviction{Reason: "Evicted", Message: "too late"})
		if !errors.Is(err, context.Canceled) || p.Ending() || p.Eviction() != nil {
			t.Errorf("with a context that has ended: %v, %v", err, p.Eviction())
		}
		if err := p.Evict(t.Context(), 1, Eviction{Reason: "Evicted", Message: "too little memory"}); err != nil {
			t.Fatal(err)
		}
		if err := p.Evict(t.Context(), 1, Eviction{Reason: "Terminated", Message: "later"}); err != nil {
			t.Fatal(err)
		}
		m.Close()
		next, err := w.open().Get(p.UID())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, one := range []*Pod{p, next} {
			status := one.Status()
			found := 0
			for _, c := range status.Conditions {
				if c.Type == corev1.DisruptionTarget && c.Reason == corev1.PodReasonTerminationByKubelet && c.Message == "too little memory" {
					found++
				}
			}
			if status.Phase != corev1.PodFailed || status.Reason != "Evicted" || found != 1 {
				t.Errorf("%s, %s, %d conditions", status.Phase, status.Reason, found)
			}
		}
	})
}

// TestEvictedForItsOwn: a pod that exceeded its own limit was not disrupted, also for the next manager. A record
// without that field means a disruption.
func TestEvictedForItsOwn(t *testing.T) {
	for name, own := range map[string]bool{"its own": true, "the node's": false} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				m := w.open()
				p := w.run(m, Record{Pod: spec("web")})
				if err := p.Evict(t.Context(), 1, Eviction{Reason: "Evicted", Message: "too much written", Own: own}); err != nil {
					t.Fatal(err)
				}
				m.Close()
				next, err := w.open().Get(p.UID())
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				for _, one := range []*Pod{p, next} {
					status := one.Status()
					disrupted := slices.ContainsFunc(status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
					if status.Phase != corev1.PodFailed || status.Reason != "Evicted" || disrupted == own || one.Eviction().Time.IsZero() {
						t.Errorf("%s, %s, disrupted: %v", status.Phase, status.Reason, disrupted)
					}
				}
			})
		})
	}
}

// TestEvictedNeverSucceeds: an evicted pod does not appear as Succeeded between the end of its containers and its
// own end, because an API server keeps the first reported end.
func TestEvictedNeverSucceeds(t *testing.T) {
	t.Parallel()
	v := &Eviction{Reason: "Terminated", Message: "why"}
	for _, tt := range []struct {
		phase, want corev1.PodPhase
		ended       bool
	}{
		{corev1.PodPending, corev1.PodPending, false}, {corev1.PodRunning, corev1.PodRunning, false},
		{corev1.PodSucceeded, corev1.PodFailed, false}, {corev1.PodFailed, corev1.PodFailed, false},
		{corev1.PodSucceeded, corev1.PodFailed, true}, {corev1.PodRunning, corev1.PodFailed, true},
	} {
		status := corev1.PodStatus{Phase: tt.phase}
		v.over(&status, tt.ended)
		if status.Phase != tt.want || status.Reason != "Terminated" {
			t.Errorf("%s, ended: %v: status %s, %s", tt.phase, tt.ended, status.Phase, status.Reason)
		}
		status = corev1.PodStatus{Phase: tt.phase}
		if (*Eviction)(nil).over(&status, tt.ended); status.Phase != tt.phase {
			t.Errorf("%s, without a reason: status %s", tt.phase, status.Phase)
		}
	}
}
