package objects

import (
	"errors"
	"testing"
	"testing/synctest"

	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/bulkhead-project/bulkhead/volume"
)

// TestHandler: a pod's RuntimeClass is watched by its name, wakes the pod when it is created, and provides the handler.
// The watch stops with the pod.
func TestHandler(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p, none := pod("1"), pod("2")
		p.Spec.RuntimeClassName = new("fast")
		_, release := w.Of(p)
		_, release2 := w.Of(none)
		synctest.Wait()
		if handler, err := w.Handler(t.Context(), p.UID); !errors.Is(err, volume.ErrNotFound) ||
			err.Error() != `runtimeclass.node.k8s.io "fast" not found` {
			t.Errorf("a missing class: %q, %v", handler, err)
		}
		if handler, err := w.Handler(t.Context(), none.UID); handler != "" || err != nil {
			t.Errorf("a pod without a class: %q, %v", handler, err)
		}
		if _, err := w.Handler(t.Context(), "unknown"); err == nil {
			t.Error("a pod without watches has a handler")
		}
		before := w.wakes(p.UID)
		made := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Handler: "bulkhead-fast"}
		if err := w.client.Tracker().Add(made); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if handler, err := w.Handler(t.Context(), p.UID); handler != "bulkhead-fast" || err != nil || w.wakes(p.UID) == before {
			t.Errorf("it has %q, %v, and was woken %d times", handler, err, w.wakes(p.UID)-before)
		}
		for _, a := range w.client.Actions() {
			watch, is := a.(clienttesting.WatchAction)
			if is && a.GetResource().Resource == "runtimeclasses" && watch.GetWatchRestrictions().Fields.String() != "metadata.name=fast" {
				t.Errorf("a watch of %v", watch.GetWatchRestrictions().Fields)
			}
		}
		release()
		release2()
		synctest.Wait()
		w.Cache.mu.Lock()
		defer w.Cache.mu.Unlock()
		if len(w.items) > 0 {
			t.Errorf("%d objects are left", len(w.items))
		}
	})
}
