package control

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	clienttesting "k8s.io/client-go/testing"
)

// TestReplacedInOneUpdate: a list that missed a deletion shows a pod of the same name with another UID. The old pod is
// ended and removed, and the new one runs.
func TestReplacedInOneUpdate(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		old, next := pod("p", "old"), pod("p", "new")
		hold := make(chan struct{})
		w.hold["old"] = hold
		w.create(old)
		if err := w.client.Tracker().Update(corev1.SchemeGroupVersion.WithResource("pods"), next, next.Namespace); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if w.count("stop old") != 1 || w.count("remove old") != 0 || !w.Has("new") {
			t.Errorf("while the old one ends: %v", w.calls)
		}
		close(hold)
		synctest.Wait()
		if w.Has("old") || !w.released["old"] || w.count("remove old") != 1 || w.cache.Get("old") != nil {
			t.Errorf("left of the old one: %v", w.calls)
		}
		if !w.has(next) || !w.Has("new") || w.count("run new") != 1 || w.count("stop new") != 0 || w.cache.Get("new") == nil {
			t.Errorf("the new one: %v", w.calls)
		}
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		if n := len(w.c.deleted) + len(w.c.seen) + len(w.c.ending); n != 0 {
			t.Errorf("%d notes are kept", n)
		}
	})
}

// TestWatchesOwnPods checks that the cache lists and watches only the pods of this node.
func TestWatchesOwnPods(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		lists, watches := 0, 0
		for _, a := range w.client.Actions() {
			selector := ""
			switch a := a.(type) {
			case clienttesting.ListAction:
				lists++
				selector = a.GetListRestrictions().Fields.String()
			case clienttesting.WatchAction:
				watches++
				selector = a.GetWatchRestrictions().Fields.String()
			}
			if selector != "spec.nodeName=node" {
				t.Errorf("a %s of %q", a.GetVerb(), selector)
			}
		}
		if lists == 0 || watches == 0 {
			t.Errorf("%d lists, %d watches", lists, watches)
		}
	})
}

// TestEndIsGivenUp: if the runtime never answers, an end fails two minutes after its grace and is retried.
func TestEndIsGivenUp(t *testing.T) {
	inWorld(t, nil, func(t *testing.T, w *world) {
		p, hold := pod("p", "1"), make(chan struct{})
		w.hold["1"] = hold
		w.create(p)
		w.terminate(p, 30)
		time.Sleep(30*time.Second + 2*time.Minute - time.Second)
		synctest.Wait()
		if n := w.count("stop 1"); n != 1 {
			t.Errorf("stopped %d times before it was given up", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := w.count("stop 1"); n != 2 || w.count("remove 1") != 0 || !w.has(p) {
			t.Errorf("after that: %v", w.calls)
		}
		close(hold)
		synctest.Wait()
		if w.has(p) || w.Has("1") {
			t.Errorf("it still exists: %v", w.calls)
		}
	})
}
