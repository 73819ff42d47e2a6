package manager

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/bulkhead-project/bulkhead/pod/podstatus"
)

// TestUpdate: the next manager has the updated pod. Refused changes are not stored.
func TestUpdate(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		memory := func(text string) corev1.ResourceRequirements {
			list := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(text)}
			return corev1.ResourceRequirements{Limits: list, Requests: list}
		}
		given := spec("web")
		given.Spec.Containers[0].Resources = memory("64Mi")
		p := w.run(m, Record{Pod: given})
		next := given.DeepCopy()
		next.Labels, next.Generation, next.Spec.Containers[0].Image = map[string]string{"a": "1"}, 5, "other:2"
		next.Spec.ActiveDeadlineSeconds = new(int64(900))
		next.Spec.Containers[0].Resources = memory("96Mi")
		refused := &podstatus.Condition{Status: corev1.ConditionTrue, Reason: corev1.PodReasonDeferred, Message: "full"}
		for _, step := range []struct {
			refused *podstatus.Condition
			memory  string
		}{{refused, "64Mi"}, {refused, "64Mi"}, {nil, "96Mi"}, {nil, "96Mi"}} {
			if err := p.Update(next, step.refused); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			m.Close()
			m = w.open()
			var err error
			if p, err = m.Get(given.UID); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			got := p.Spec()
			has := got.Spec.Containers[0].Resources.Limits[corev1.ResourceMemory]
			if got.Labels["a"] != "1" || got.Generation != 5 || got.Spec.Containers[0].Image != "other:2" ||
				*got.Spec.ActiveDeadlineSeconds != 900 || has.String() != step.memory {
				t.Errorf("with %v: %s, %+v", step.refused, &has, got)
			}
		}
		if c := p.Status().ContainerStatuses[0]; c.RestartCount != 1 || c.State.Running == nil || c.Image != "other:2" {
			t.Errorf("container: %+v", c)
		}
		if given.Spec.Containers[0].Image != "here:1" {
			t.Error("the given pod was changed")
		}
		if err := p.Stop(t.Context(), new(int64)); err != nil {
			t.Fatal(err)
		}
		if err := p.Update(given, nil); err != nil || p.Spec().Generation != 5 {
			t.Errorf("Update of a pod that has ended: got error %v and spec %+v, want generation 5", err, p.Spec())
		}
	})
}
