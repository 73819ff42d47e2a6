package control

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
)

// become sets a pod's phase in the API server, and waits until the controller is idle.
func (w *world) become(p *corev1.Pod, phase corev1.PodPhase) *corev1.Pod {
	w.t.Helper()
	next := p.DeepCopy()
	next.Status.Phase = phase
	if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), next, next.Namespace); err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	return next
}

// TestEndedByOthers: another client sets a running pod's phase to Failed or Succeeded. The pod is ended within its
// grace and keeps its resources until then. Its object and its leftovers stay until it is deleted.
func TestEndedByOthers(t *testing.T) {
	for _, phase := range []corev1.PodPhase{corev1.PodFailed, corev1.PodSucceeded} {
		t.Run(string(phase), func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				p, hold := pod("p", "1"), make(chan struct{})
				w.hold["1"] = hold
				w.create(p)
				p = w.become(p, phase)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if fmt.Sprint(w.graces) != "[30]" || w.released["1"] {
					t.Errorf("while it ends: graces %v, released %v", w.graces, w.released)
				}
				close(hold)
				synctest.Wait()
				if !w.released["1"] || !w.Has("1") || !w.has(p) || w.count("report 1") != 1 || w.count("fail 1") != 0 {
					t.Errorf("after its end: released %v, %v", w.released, w.calls)
				}
				w.terminate(p, 30)
				if w.Has("1") || w.has(p) {
					t.Errorf("deleted: %v", w.calls)
				}
			})
		})
	}
}

// TestEndedByOthersAndDeleted: if such a pod is deleted while it is ending, it is removed as soon as it has ended.
func TestEndedByOthersAndDeleted(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		p, hold := pod("p", "1"), make(chan struct{})
		w.hold["1"] = hold
		w.create(p)
		p = w.become(p, corev1.PodFailed)
		w.terminate(p, 5)
		close(hold)
		synctest.Wait()
		if w.Has("1") || w.has(p) || fmt.Sprint(w.graces[:2]) != "[30 5]" {
			t.Errorf("graces %v, %v", w.graces, w.calls)
		}
	})
}

// TestEndGivesBack: an ended pod's resources are released when it is reconciled, even if its source does not show a
// phase, as with a file.
func TestEndGivesBack(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.create(pod("p", "1"))
		w.c.Wake("1")
		synctest.Wait()
		if w.released["1"] {
			t.Error("it runs, but its resources were released")
		}
		w.die("1")
		w.c.Wake("1")
		synctest.Wait()
		if !w.released["1"] || w.count("stop 1") != 0 {
			t.Errorf("it has ended: %v, %v", w.released, w.calls)
		}
	})
}

// TestRevived: a pod that ended for a temporary reason runs again once the node accepts it, also after a failed
// attempt.
func TestRevived(t *testing.T) {
	const uid = types.UID("0123456789abcdef0123456789abcdef")
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.create(pod("p", uid))
		w.mu.Lock()
		w.rejects = &Rejection{Reason: "NodeShutdown"}
		w.ended[uid], w.passing[uid] = true, true
		w.mu.Unlock()
		w.c.Wake(uid)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if w.count("revive "+string(uid)) != 0 || w.failed[uid] != "NodeShutdown" || !w.released[uid] || w.count("remove "+string(uid)) != 0 {
			t.Errorf("while the node rejects it: %v, %v", w.failed, w.calls)
		}
		w.mu.Lock()
		w.rejects = nil
		w.fail["revive"], w.times["revive"] = errPassing, 1
		w.mu.Unlock()
		w.c.Wake(uid)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := w.count("revive " + string(uid)); n != 2 || w.HasEnded(uid) || w.count("run "+string(uid)) != 1 {
			t.Errorf("when the node accepts it: %d times, %v", n, w.calls)
		}
	})
}

// TestPutBack: a static pod is run again if its file is removed and restored, even if the file returns before the last
// run was removed.
func TestPutBack(t *testing.T) {
	const uid = types.UID("0123456789abcdef0123456789abcdef")
	for name, failing := range map[string]int{"removed at once": 0, "a removal fails": 3} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				w.create(pod("p", uid))
				w.die(uid)
				w.c.Wake(uid)
				synctest.Wait()
				if failing > 0 {
					w.mu.Lock()
					w.fail["remove"], w.times["remove"] = errPassing, failing
					w.mu.Unlock()
				}
				w.drop(pod("p", uid))
				w.create(pod("p", uid))
				time.Sleep(time.Minute)
				synctest.Wait()
				if !w.Has(uid) || w.count("run "+string(uid)) != 2 || w.count("remove "+string(uid)) != failing+1 {
					t.Errorf("the file is restored: %v", w.calls)
				}
				time.Sleep(time.Hour)
				w.c.Wake(uid)
				synctest.Wait()
				if w.count("stop "+string(uid)) != failing+1 {
					t.Errorf("it was ended again: %v", w.calls)
				}
			})
		})
	}
}

// TestStaticWaits: a rejected static pod is retried, at once after Wake, with only one event. A pod that can never run
// is not retried.
func TestStaticWaits(t *testing.T) {
	const uid, never = types.UID("0123456789abcdef0123456789abcdef"), types.UID("fedcba9876543210fedcba9876543210")
	inWorld(t, nil, func(t *testing.T, w *world) {
		told := w.c.o.Events.(*record.FakeRecorder).Events
		w.rejects = &Rejection{Reason: "UnexpectedAdmissionError"}
		w.create(pod("never", never))
		w.mu.Lock()
		w.rejects = &Rejection{Reason: "OutOfcpu"}
		w.mu.Unlock()
		w.create(pod("p", uid))
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		if n := w.count("fail " + string(uid)); n != 11 || w.count("fail "+string(never)) != 1 || len(told) != 2 {
			t.Errorf("tried %d times, %d events, %v", n, len(told), w.calls)
		}
		w.mu.Lock()
		w.rejects = nil
		w.mu.Unlock()
		w.c.Wake(uid)
		synctest.Wait()
		if !w.Has(uid) || w.Has(never) {
			t.Errorf("when there is room: %v", w.calls)
		}
	})
}

// TestPreempts: a pod for which room is made runs as soon as there is room, or after a while if other ends make it. Its
// phase does not become Failed meanwhile.
func TestPreempts(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		const took = 3 * time.Second
		full := &Rejection{Reason: "OutOfcpu"}
		w.mu.Lock()
		w.rejects = full
		w.preempts = func(reason string) (func(context.Context), bool) {
			return func(context.Context) {
				time.Sleep(took)
				w.mu.Lock()
				w.rejects = nil
				w.mu.Unlock()
			}, reason == "OutOfcpu"
		}
		w.mu.Unlock()
		w.create(pod("p", "1"))
		time.Sleep(took)
		synctest.Wait()
		if !w.Has("1") {
			t.Errorf("when there is room: %v", w.calls)
		}
		times := 0
		w.mu.Lock()
		w.rejects = full
		w.preempts = func(string) (func(context.Context), bool) {
			if times++; times == 3 {
				w.rejects = nil
			}
			return nil, true
		}
		w.mu.Unlock()
		w.create(pod("q", "2"))
		time.Sleep(4 * waitPause)
		synctest.Wait()
		if !w.Has("2") || times != 3 || len(w.failed) > 0 {
			t.Errorf("%d times: %v, %v", times, w.failed, w.calls)
		}
	})
}

// TestPreemptionHoldsUpNobody: while room is made for more pods than there are workers, other pods are still run and
// ended.
func TestPreemptionHoldsUpNobody(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.create(pod("ends", "ends"))
		hold := make(chan struct{})
		w.mu.Lock()
		w.rejects = &Rejection{Reason: "OutOfcpu"}
		w.preempts = func(string) (func(context.Context), bool) { return func(context.Context) { <-hold }, true }
		w.mu.Unlock()
		for i := range 2 * workers {
			w.create(pod(fmt.Sprint("critical", i), types.UID(fmt.Sprint("critical", i))))
		}
		w.mu.Lock()
		w.rejects = nil
		w.mu.Unlock()
		w.create(pod("p", "1"))
		w.terminate(pod("ends", "ends"), 1)
		if !w.Has("1") || w.Has("ends") || w.Has("critical0") {
			t.Errorf("while room is made: %v", w.calls)
		}
		close(hold)
		synctest.Wait()
		if !w.Has("critical0") || len(w.All()) != 2*workers+1 {
			t.Errorf("when there is room: %v", w.All())
		}
	})
}
