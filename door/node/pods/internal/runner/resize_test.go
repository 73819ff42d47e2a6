package runner

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/door/node/resources/admission"
)

// sized returns a pod with one container that requests, and is limited to, that many processors.
func sized(name string, uid types.UID, generation int64, cpu string) *corev1.Pod {
	p := spec(name, uid)
	list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	p.Generation, p.Spec.Containers[0].Resources = generation, corev1.ResourceRequirements{Limits: list, Requests: list}
	return p
}

// ledger counts the resources of a node with two processors.
func (w *world) ledger() *admission.Admission {
	w.t.Helper()
	node := &corev1.Node{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourcePods: resource.MustParse("10"),
	}}}
	a := admission.New(func() *corev1.Node { return node }, nil, nil)
	w.resources = a
	w.Close()
	w.open()
	return a
}

// expectReserved checks how many processors are reserved for a pod, by what is left for others.
func expectReserved(t *testing.T, when string, a *admission.Admission, cpu string) {
	t.Helper()
	const other = types.UID("00000000-0000-0000-0000-00000000000f")
	left := resource.MustParse("2")
	left.Sub(resource.MustParse(cpu))
	if no := a.Admit(sized("other", other, 1, left.String())); no != nil {
		t.Errorf("%s: more than %s is reserved: %s", when, cpu, no.Message)
	}
	left.Add(resource.MustParse("1m"))
	if no := a.Admit(sized("other", other, 1, left.String())); no == nil {
		t.Errorf("%s: less than %s is reserved", when, cpu)
	}
	a.Release(other)
}

// startPod runs a pod that has half a processor.
func (w *world) startPod(a *admission.Admission) {
	w.t.Helper()
	p := sized("p", uid, 1, "500m")
	if no := a.Admit(p); no != nil {
		w.t.Fatal(no)
	}
	if err := w.Run(w.t.Context(), p); err != nil || !w.ready(uid, time.Minute) {
		w.t.Fatal(err)
	}
}

// TestRefusedResize: processors that the runtime refuses permanently are released. The pod does not request them again
// until its specification asks for another size.
func TestRefusedResize(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.ledger()
		w.startPod(a)
		w.runtime.most = 1000
		labelled := sized("p", uid, 2, "1500m")
		labelled.Labels = map[string]string{"a": "1"}
		for _, step := range []struct {
			when  string
			p     *corev1.Pod
			has   string
			sizes []int64
		}{
			{"refused", sized("p", uid, 2, "1500m"), "500m", []int64{1500}},
			{"the same again", sized("p", uid, 2, "1500m"), "500m", []int64{1500}},
			{"with another label", labelled, "500m", []int64{1500}},
			{"another request", sized("p", uid, 3, "1600m"), "500m", []int64{1500, 1600}},
			{"a possible size", sized("p", uid, 4, "800m"), "800m", []int64{1500, 1600, 800}},
			{"less", sized("p", uid, 5, "300m"), "300m", []int64{1500, 1600, 800, 300}},
		} {
			if err := w.Update(t.Context(), step.p); err != nil {
				t.Errorf("%s: %v", step.when, err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			expectReserved(t, step.when, a, step.has)
			if !slices.Equal(w.runtime.sizes, step.sizes) {
				t.Errorf("%s: resized to %v", step.when, w.runtime.sizes)
			}
		}
		w.stopAndRemove(uid)
	})
}

// TestResizeAcrossRunners: a resize that was running when the Runner stopped continues in the next one, which gives it
// up if the runtime refuses it.
func TestResizeAcrossRunners(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.ledger()
		w.startPod(a)
		w.runtime.most, w.runtime.fails["UpdatePodSandboxResources"] = 1000, 2 // once in each Runner
		if err := w.Update(t.Context(), sized("p", uid, 2, "1500m")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		w.runtime.mu.Lock()
		w.runtime.fails["UpdatePodSandboxResources"] = 1 // so that the resize is still running at the check
		w.runtime.mu.Unlock()
		a = w.ledger() // takes over the pods
		w.Reserve(a.AddRunning)
		expectReserved(t, "under way", a, "1500m")
		for _, when := range []string{"refused", "the same again"} {
			time.Sleep(time.Minute)
			synctest.Wait()
			expectReserved(t, when, a, "500m")
			if status, _ := w.Status(uid); status.ContainerStatuses[0].Resources.Limits.Cpu().String() != "500m" || len(w.runtime.sizes) != 1 {
				t.Errorf("%s: it has %v, and was resized to %v", when, status.ContainerStatuses[0].Resources, w.runtime.sizes)
			}
			if err := w.Update(t.Context(), sized("p", uid, 2, "1500m")); err != nil {
				t.Error(err)
			}
		}
		w.stopAndRemove(uid)
	})
}

// TestResizeDownHolds: a pod that requests less keeps its VM's size reserved until the VM has shrunk.
func TestResizeDownHolds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.ledger()
		w.startPod(a)
		w.runtime.fails["UpdatePodSandboxResources"] = 2
		if err := w.Update(t.Context(), sized("p", uid, 2, "300m")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		expectReserved(t, "under way", a, "500m")
		time.Sleep(time.Minute)
		synctest.Wait()
		expectReserved(t, "done", a, "300m")
		w.stopAndRemove(uid)
	})
}

// TestDeferredResize: a pod that waits for more still gets the size that was granted before, and that size stays
// reserved.
func TestDeferredResize(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.ledger()
		w.startPod(a)
		const other = types.UID("00000000-0000-0000-0000-000000000002")
		if no := a.Admit(sized("q", other, 1, "700m")); no != nil {
			t.Fatal(no)
		}
		w.runtime.fails["UpdatePodSandboxResources"] = 2
		if err := w.Update(t.Context(), sized("p", uid, 2, "1")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		for range 3 {
			if err := w.Update(t.Context(), sized("p", uid, 3, "1500m")); !errors.Is(err, control.ErrWaits) {
				t.Errorf("deferred: %v", err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
		}
		if !slices.Equal(w.runtime.sizes, []int64{1000}) {
			t.Errorf("resized to %v", w.runtime.sizes)
		}
		a.Release(other)
		expectReserved(t, "while it waits", a, "1")
		if err := w.Update(t.Context(), sized("p", uid, 3, "1500m")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		expectReserved(t, "when the other has ended", a, "1500m")
		w.stopAndRemove(uid)
	})
}

// TestResizeOfOneThatEnds: a resize that is running when its pod ends reserves nothing for the pod.
func TestResizeOfOneThatEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		a := w.ledger()
		w.startPod(a)
		w.runtime.fails["UpdatePodSandboxResources"] = 1000
		if err := w.Update(t.Context(), sized("p", uid, 2, "1")); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second)
		a.Release(uid) // the API server shows it as ended
		if err := w.Update(t.Context(), sized("p", uid, 3, "1500m")); err != nil {
			t.Error(err)
		}
		w.stopAndRemove(uid)
		synctest.Wait()
		expectReserved(t, "ended", a, "0")
	})
}
