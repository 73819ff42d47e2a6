package control

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

// TestFirstAddsAreNotLimited: a thousand pods that are bound at once run at once.
func TestFirstAddsAreNotLimited(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		began := time.Now()
		const n = 1000
		for i := range n {
			if err := w.client.Tracker().Add(pod(fmt.Sprint("p", i), types.UID(fmt.Sprint(i)))); err != nil {
				t.Fatal(err)
			}
			if i%50 == 0 {
				synctest.Wait() // a fake watch buffers a hundred events
			}
		}
		synctest.Wait()
		if got := len(w.All()); got != n || time.Since(began) > 0 {
			t.Errorf("%d pods run after %v", got, time.Since(began))
		}
	})
}

// TestObjectGoesAfterTheVM: the object stays until everything of the pod is removed and its end is reported. It is
// deleted by its UID, with no grace.
func TestObjectGoesAfterTheVM(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		p := pod("p", "1")
		hold := make(chan struct{})
		w.hold["1"] = hold
		w.create(p)
		w.terminate(p, 5)
		time.Sleep(time.Minute) // far beyond its grace
		synctest.Wait()
		if !w.has(p) || w.count("remove 1") > 0 {
			t.Error("the object was deleted before the VM was removed")
		}
		close(hold)
		synctest.Wait()
		if w.has(p) || w.Has("1") || w.count("report 1") != 1 || !w.released["1"] {
			t.Errorf("its end: %v", w.calls)
		}
		deletions := 0
		for _, a := range w.client.Actions() {
			d, ok := a.(clienttesting.DeleteAction)
			if !ok {
				continue
			}
			deletions++
			o := d.GetDeleteOptions()
			if o.Preconditions == nil || o.Preconditions.UID == nil || *o.Preconditions.UID != "1" ||
				o.GracePeriodSeconds == nil || *o.GracePeriodSeconds != 0 {
				t.Errorf("deleted with %s", &o)
			}
		}
		if deletions != 1 {
			t.Errorf("%d deletions", deletions)
		}
	})
}

// TestShorterGrace: a second deletion can only shorten the grace of the first.
func TestShorterGrace(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		p := pod("p", "1")
		hold := make(chan struct{})
		w.hold["1"] = hold
		w.create(p)
		w.terminate(p, 30)
		w.terminate(p, 60)
		w.terminate(p, 2)
		close(hold)
		synctest.Wait()
		if fmt.Sprint(w.graces) != "[30 2]" || w.has(p) {
			t.Errorf("graces: %v", w.graces)
		}
	})
}

// TestByUID: two pods of one name are independent. The old one is ended, and the new one runs at once.
func TestByUID(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		old, next := pod("p", "old"), pod("p", "new")
		hold := make(chan struct{})
		w.hold["old"] = hold
		w.create(old)
		w.drop(old) // forced deletion
		w.create(next)
		if !w.Has("new") || w.count("stop old") != 1 || !w.Has("old") {
			t.Errorf("while the old one ends: %v", w.calls)
		}
		close(hold)
		synctest.Wait()
		if w.Has("old") || !w.Has("new") || !w.has(next) || w.count("run new") != 1 {
			t.Errorf("after the old one's end: %v", w.calls)
		}
	})
}

// TestTombstone: a deletion that the cache missed and found by a new list ends the pod.
func TestTombstone(t *testing.T) {
	p := pod("p", "1")
	inWorld(t, []*corev1.Pod{p}, func(t *testing.T, w *world) {
		notifyGone(cache.DeletedFinalStateUnknown{Key: "default/p", Obj: p}, w.c.sawDeletion)
		synctest.Wait()
		if w.Has("1") {
			t.Errorf("it still runs: %v", w.calls)
		}
	})
}

// TestRetriedForEver: failures are retried without end, with pauses that grow to a bound, also with restartPolicy
// Never. Wake retries at once.
func TestRetriedForEver(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.fail["run"] = errPassing
		p := pod("p", "1")
		w.create(p)
		time.Sleep(10 * time.Minute)
		early := w.count("run 1")
		time.Sleep(time.Hour)
		synctest.Wait()
		late := w.count("run 1")
		if early > 30 || late-early < 55 || late-early > 61 || w.count("fail 1") > 0 {
			t.Errorf("%d times in ten minutes, %d in the next hour", early, late-early)
		}
		w.mu.Lock()
		delete(w.fail, "run")
		w.mu.Unlock()
		w.c.Wake("1")
		synctest.Wait()
		if !w.Has("1") || w.count("run 1") != late+1 {
			t.Errorf("woken: %v", w.Has("1"))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.count("run 1") != late+1 {
			t.Error("it was run twice")
		}
	})
}

// TestWaits: a waiting pod runs as soon as it is woken, and is retried from time to time.
func TestWaits(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.fail["run"] = fmt.Errorf("a secret: %w", ErrWaits)
		w.create(pod("p", "1"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := w.count("run 1"); n > int(time.Hour/waitPause)+1 || w.failed["1"] != "" {
			t.Errorf("%d times, failed: %q", n, w.failed["1"])
		}
		w.mu.Lock()
		delete(w.fail, "run")
		w.mu.Unlock()
		w.c.Wake("1")
		synctest.Wait()
		if !w.Has("1") {
			t.Error("it still waits")
		}
	})
}

// TestToldAtStart: the statuses of existing pods are reported when the API server first answers, because they may have
// changed before.
func TestToldAtStart(t *testing.T) {
	p := pod("p", "1")
	inWorld(t, []*corev1.Pod{p}, func(t *testing.T, w *world) {
		w.create(p)
		if w.count("changed 1") == 0 || w.count("run 1") > 0 {
			t.Errorf("%v", w.calls)
		}
	})
}

// TestRejected: a pod that can never run or is not admitted fails with a reason and is not retried.
func TestRejected(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.fail["run"] = fmt.Errorf("no such thing: %w", ErrRejected)
		w.create(pod("p", "1"))
		w.mu.Lock()
		w.rejects = &Rejection{Reason: "OutOfcpu"}
		w.mu.Unlock()
		w.create(pod("q", "2"))
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.failed["1"] != "UnexpectedAdmissionError" || w.failed["2"] != "OutOfcpu" || w.count("run 1") != 1 || w.count("run 2") != 0 {
			t.Errorf("%v, %v", w.failed, w.calls)
		}
		if !w.released["1"] {
			t.Error("its resources were not released")
		}
	})
}

// TestRejectedStays: a rejected pod is not run later, even if the node would accept it by then and the source does not
// show the failure yet.
func TestRejectedStays(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		w.mu.Lock()
		w.rejects = &Rejection{Reason: "OutOfcpu"}
		w.fail["fail"], w.times["fail"] = errPassing, 1
		w.mu.Unlock()
		w.create(pod("p", "1"))
		w.mu.Lock()
		w.rejects = nil
		w.mu.Unlock()
		w.become(pod("p", "1"), corev1.PodPending) // any change of it
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.count("run 1") != 0 || w.failed["1"] != "OutOfcpu" || w.count("fail 1") < 2 {
			t.Errorf("%v, %v", w.failed, w.calls)
		}
	})
}

// TestOrphans: a pod that the API server does not have is ended after two checks, if the API server confirms it.
func TestOrphans(t *testing.T) {
	inWorld(t, []*corev1.Pod{pod("orphan", "1")}, func(t *testing.T, w *world) {
		if w.count("stop 1") != 0 {
			t.Error("ended after the first check")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if w.Has("1") || w.count("stop 1") != 1 || fmt.Sprint(w.graces) != "[30]" {
			t.Errorf("after two checks: %v, graces %v", w.calls, w.graces)
		}
		for _, a := range w.client.Actions() {
			if l, ok := a.(clienttesting.ListAction); ok && l.GetListRestrictions().Fields.String() == "" {
				t.Errorf("a list of all pods: %v", a)
			}
		}
	})
}

// TestOrphanIsLive: a pod that only the cache lacks is not ended.
func TestOrphanIsLive(t *testing.T) {
	p := pod("p", "1")
	elsewhere := p.DeepCopy()
	inWorld(t, []*corev1.Pod{p}, func(t *testing.T, w *world) {
		w.answers("list", func() (runtime.Object, error) { return &corev1.PodList{Items: []corev1.Pod{*elsewhere}}, nil })
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.count("stop 1") != 0 {
			t.Error("a pod was ended although the API server has it")
		}
	})
}

// TestOrphanUnknown: a pod is not ended while the API server does not answer, but is later.
func TestOrphanUnknown(t *testing.T) {
	inWorld(t, []*corev1.Pod{pod("orphan", "1")}, func(t *testing.T, w *world) {
		down := errors.New("the API server is down")
		w.answers("list", func() (runtime.Object, error) { return nil, down })
		time.Sleep(time.Hour)
		synctest.Wait()
		if w.count("stop 1") != 0 {
			t.Error("ended although the API server did not answer")
		}
		w.mu.Lock()
		down = nil
		w.mu.Unlock()
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if w.Has("1") {
			t.Error("it still exists")
		}
	})
}

// TestEveryStepFails: each step of an end fails once, and the pod is removed anyway.
func TestEveryStepFails(t *testing.T) {
	for _, step := range []string{"stop", "report", "remove", "delete"} {
		t.Run(step, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				p := pod("p", "1")
				w.create(p)
				w.mu.Lock()
				w.fail[step], w.times[step] = errPassing, 3
				w.mu.Unlock()
				n := 3
				if step == "delete" {
					w.answers("delete", func() (runtime.Object, error) {
						if n--; n >= 0 {
							return nil, errPassing
						}
						return nil, nil
					})
				}
				w.terminate(p, 5)
				time.Sleep(time.Minute)
				synctest.Wait()
				if w.has(p) || w.Has("1") {
					t.Errorf("it still exists: %v", w.calls)
				}
			})
		})
	}
}

// TestEndIsTriedForEver: an end that fails in any step is retried without end, with pauses that grow to a bound. It
// succeeds once the step does.
func TestEndIsTriedForEver(t *testing.T) {
	for _, step := range []string{"stop", "report", "remove"} {
		t.Run(step, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				p := pod("p", "1")
				w.create(p)
				w.mu.Lock()
				w.fail[step] = errPassing
				w.mu.Unlock()
				w.terminate(p, 5)
				time.Sleep(10 * time.Minute)
				early := w.count(step + " 1")
				time.Sleep(time.Hour)
				synctest.Wait()
				late := w.count(step + " 1")
				if early > 30 || late-early < 55 || late-early > 61 {
					t.Errorf("%d times in ten minutes, %d in the next hour", early, late-early)
				}
				w.mu.Lock()
				delete(w.fail, step)
				w.mu.Unlock()
				time.Sleep(lastPause + time.Second)
				synctest.Wait()
				if w.has(p) || w.Has("1") {
					t.Error("it still exists")
				}
			})
		})
	}
}

// TestConflict: a deletion with a conflict is retried while the API server has the pod. It counts as done if another
// pod has taken the name.
func TestConflict(t *testing.T) {
	conflict := apierrors.NewConflict(corev1.Resource("pods"), "p", errPassing)
	for name, replaced := range map[string]bool{"changed meanwhile": false, "replaced": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(t *testing.T, w *world) {
				p, tries := pod("p", "1"), 0
				w.create(p)
				w.answers("delete", func() (runtime.Object, error) {
					if tries++; tries <= 3 || replaced {
						return nil, conflict
					}
					return nil, nil
				})
				if replaced {
					list := w.answer
					w.answer = func(a clienttesting.Action) (bool, runtime.Object, error) {
						if a.GetVerb() == "list" {
							return true, &corev1.PodList{Items: []corev1.Pod{*pod("p", "2")}}, nil
						}
						return list(a)
					}
				}
				w.terminate(p, 5)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if replaced && tries != 1 || !replaced && (tries != 4 || w.has(p)) || w.Has("1") {
					t.Errorf("%d deletions, the API server has it: %v", tries, w.has(p))
				}
			})
		})
	}
}

// TestEndedStays: an ended pod is not run again by a runner that has no record of it. A pod that was deleted before it
// ran is set to Failed before its object is deleted.
func TestEndedStays(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		p := pod("done", "1")
		p.Status.Phase = corev1.PodSucceeded
		w.create(p)
		q := pod("never", "2")
		w.mu.Lock()
		w.fail["run"] = errPassing
		w.mu.Unlock()
		w.create(q)
		w.terminate(q, 30)
		if w.count("run 1") != 0 || w.has(q) || w.count("fail 2") != 1 || !w.has(p) {
			t.Errorf("%v", w.calls)
		}
	})
}
