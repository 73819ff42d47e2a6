package manager

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/config"
)

// notRun returns a pod with the containers a and b that is not run.
func notRun(t *testing.T) *Pod {
	t.Helper()
	limit := func() corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}}
	}
	spec := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u-1"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", Resources: limit()}, {Name: "b", Resources: limit()}}},
	}
	p, err := pod.New(pod.Options{Options: config.Options{Pod: spec}, Runtime: struct{ internalapi.RuntimeService }{}, Images: struct {
		internalapi.ImageManagerService
	}{}})
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{o: Options{Logger: slog.New(slog.DiscardHandler)}, ctx: t.Context()}
	return &Pod{m: m, dir: t.TempDir(), p: p, done: make(chan struct{}), identity: identity{spec}, rec: Record{Pod: spec}}
}

// stored returns the memory of each container in the record, for the next manager.
func (e *Pod) stored(t *testing.T) map[string]string {
	t.Helper()
	var rec Record
	if err := atomicfile.ReadJSON(filepath.Join(e.dir, recordFile), &rec); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, c := range rec.spec().Spec.Containers {
		memory := c.Resources.Limits[corev1.ResourceMemory]
		out[c.Name] = memory.String()
	}
	return out
}

// TestARefusedResizeIsNotStored: later resizes and the generation are stored.
func TestARefusedResizeIsNotStored(t *testing.T) {
	t.Parallel()
	e := notRun(t)
	refused := func(generation int64) func() (corev1.PodStatus, <-chan struct{}) {
		status := e.p.Status()
		status.ObservedGeneration = generation
		status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Reason: corev1.PodReasonInfeasible, Message: "too much"}}
		return func() (corev1.PodStatus, <-chan struct{}) { return status, nil }
	}
	ask := func(name, memory string) int64 {
		t.Helper()
		generation, err := e.requestResize(name, map[string]string{"memory": memory}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return generation
	}
	check := func(when, a, b string) {
		t.Helper()
		if diff := cmp.Diff(map[string]string{"a": a, "b": b}, e.stored(t)); diff != "" {
			t.Errorf("%s: %s", when, diff)
		}
	}
	first := ask("a", "64Gi")
	check("asked for", "64Gi", "64Mi")
	if err := (requested{e, e.done, first}).await(refused(first)); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("refused: %v", err)
	}
	check("refused", "64Mi", "64Mi")
	second := ask("b", "96Mi")
	check("requested with another", "64Gi", "96Mi")
	requested{e, e.done, first}.finish(e.p.Status(), false)
	requested{e, make(chan struct{}), second}.finish(corev1.PodStatus{ObservedGeneration: second}, false)
	check("an answer to an earlier request, or from another run", "64Gi", "96Mi")
	if err := (requested{e, e.done, second}).await(refused(second)); !errors.Is(err, errdefs.ErrInvalidArgument) {
		t.Errorf("refused again: %v", err)
	}
	check("refused again", "64Mi", "64Mi")
	if e.rec.Generation != second {
		t.Errorf("generation %d, want %d", e.rec.Generation, second)
	}
	done := make(chan struct{})
	close(done)
	if err := (requested{e, done, second + 1}).await(e.p.Watch); !errors.Is(err, errdefs.ErrConflict) {
		t.Errorf("await of a pod that ends: got %v, want %v", err, errdefs.ErrConflict)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.m.ctx = ctx
	if err := (requested{e, e.done, second + 1}).await(e.p.Watch); !errors.Is(err, context.Canceled) {
		t.Errorf("await of a manager that ends: got %v, want %v", err, context.Canceled)
	}
}

// TestResize changes limits of a running container, also in the record.
func TestResize(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		given := spec("web")
		given.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), corev1.ResourceCPU: resource.MustParse("1")},
			Requests: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")},
		}
		p := w.run(m, Record{Pod: given})
		if err := p.Resize(t.Context(), "", map[string]string{"memory": "96Mi"}, nil); err != nil {
			t.Fatal(err)
		}
		for text, limits := range map[string]map[string]string{
			"no quantity": {"memory": "much"}, "a resource that cannot be changed": {"example.com/gpu": "1"},
		} {
			if err := p.Resize(t.Context(), "c", limits, nil); !errors.Is(err, errdefs.ErrInvalidArgument) {
				t.Errorf("%s: %v", text, err)
			}
		}
		check := func(when string, p *Pod) {
			t.Helper()
			written, err := p.Written()
			if err != nil {
				t.Fatal(err)
			}
			for _, pod := range []*corev1.Pod{p.Spec(), written} {
				own := pod.Spec.Containers[0].Resources
				if limit, request := own.Limits.Memory().String(), own.Requests.Memory().String(); limit != "96Mi" || request != "96Mi" {
					t.Errorf("%s: limit %s, request %s", when, limit, request)
				}
			}
			if limit := p.Original().Spec.Containers[0].Resources.Limits.Memory().String(); limit != "64Mi" {
				t.Errorf("%s: its limit is %s", when, limit)
			}
		}
		check("resized", p)
		m.Close()
		m = w.open()
		p = w.find(m, "web")
		check("taken over", p)
		if err := p.Stop(t.Context(), noGrace()); err != nil {
			t.Fatal(err)
		}
		if err := p.Resize(t.Context(), "c", map[string]string{"memory": "128Mi"}, nil); !errors.Is(err, errdefs.ErrConflict) {
			t.Errorf("Resize of a pod that has ended: got %v, want %v", err, errdefs.ErrConflict)
		}
	})
}

// TestSlowResize: a resize that is not done in time is reported as continuing, with its reason.
func TestSlowResize(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		given := spec("web")
		given.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
		p := w.run(m, Record{Pod: given})
		w.runtime.fail("UpdateContainerResources", errors.New("no update today"))
		err := p.Resize(t.Context(), "c", map[string]string{"memory": "96Mi"}, nil)
		if !errors.Is(err, errdefs.ErrConflict) || !strings.Contains(err.Error(), "no update today") {
			t.Errorf("resized: %v", err)
		}
	})
}
