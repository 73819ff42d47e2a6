package runner

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/manager"
)

// TestActive: a pod that is being ended stays active, so that Evict can shorten its grace. An evicted pod is not
// evicted again.
func TestActive(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := spec("p", uid)
		p.Spec.TerminationGracePeriodSeconds = new(int64(3600))
		p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{
			PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3000}},
		}
		if err := w.Run(t.Context(), p); err != nil || !w.ready(uid, time.Minute) {
			t.Fatal(err)
		}
		active := func(all, uncondemned int) {
			t.Helper()
			synctest.Wait()
			if len(w.Active()) != all || len(w.Unevicted()) != uncondemned {
				t.Errorf("%d are active, %d of these uncondemned", len(w.Active()), len(w.Unevicted()))
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Stop(ctx, uid, 3600); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		active(1, 1)
		ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Evict(ctx, uid, 2000, manager.Eviction{Reason: "Terminated"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		active(1, 0)
		if err := w.Evict(t.Context(), uid, 0, manager.Eviction{Reason: "Evicted"}); err != nil {
			t.Error(err)
		}
		active(0, 0)
		if status, _ := w.Status(uid); status.Reason != "Terminated" {
			t.Errorf("it ended as %s", status.Reason)
		}
		w.stopAndRemove(uid)
	})
}

// TestRevive: a pod that ended for a temporary reason runs again, also in the next process and also if that finds it
// still ending. Other pods do not.
func TestRevive(t *testing.T) {
	for name, cut := range map[string]bool{"ended": false, "cut off": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				p := spec("p", uid)
				p.Spec.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 4}}}
				if err := w.Run(t.Context(), p); err != nil || !w.ready(uid, time.Minute) || w.Revivable(uid) {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if cut {
					ctx, cancel = context.WithTimeout(t.Context(), time.Second)
				}
				defer cancel()
				err := w.Evict(ctx, uid, 10, manager.Eviction{Reason: "Terminated", Passing: true})
				if (err != nil) != cut || w.Revivable(uid) == cut {
					t.Fatalf("%v, revivable: %v", err, w.Revivable(uid))
				}
				w.Close()
				w.open()
				time.Sleep(time.Minute)
				synctest.Wait()
				if !w.HasEnded(uid) || !w.Revivable(uid) {
					t.Fatal("the next process does not find it")
				}
				if err := w.Revive(t.Context(), uid); err != nil || !w.ready(uid, time.Minute) || w.Revivable(uid) {
					t.Errorf("it does not run again: %v", err)
				}
				if status, _ := w.Status(uid); status.Phase != corev1.PodRunning || status.Reason != "" {
					t.Errorf("it is %s, %s", status.Phase, status.Reason)
				}
				if err := w.Evict(t.Context(), uid, 0, manager.Eviction{Reason: "Evicted"}); err != nil || w.Revivable(uid) {
					t.Errorf("an evicted pod runs again: %v", err)
				}
				w.stopAndRemove(uid)
			})
		})
	}
}
