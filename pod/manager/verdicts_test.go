package manager

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/atomicfile"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// TestLastVerdicts: damaged and missing files count as empty, and a pod without probes has no file.
func TestLastVerdicts(t *testing.T) {
	t.Parallel()
	m := &Manager{o: Options{Logger: slog.New(slog.DiscardHandler)}}
	e := &Pod{dir: t.TempDir(), m: m, identity: identity{&corev1.Pod{}}, rec: Record{Pod: &corev1.Pod{}}}
	probed := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{{}, {StartupProbe: &corev1.Probe{}}}}}
	if got := notesOf(e).lastVerdicts(probed); got != nil {
		t.Errorf("lastVerdicts without a file: got %v, want nil", got)
	}
	want := map[string]probe.Verdict{"c1": {Started: true, Ready: true}, "c2": {Started: true}}
	path := filepath.Join(e.dir, verdictsFile)
	if err := atomicfile.WriteJSON(path, want, 0o600, atomicfile.Volatile); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, notesOf(e).lastVerdicts(probed)); diff != "" {
		t.Error(diff)
	}
	if got := notesOf(e).lastVerdicts(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{}}}}); got != nil {
		t.Errorf("lastVerdicts of a pod without probes: got %v, want nil", got)
	}
	if err := os.WriteFile(path, []byte(`{"c1": {"started": tr`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := notesOf(e).lastVerdicts(probed); got != nil {
		t.Errorf("lastVerdicts with a damaged file: got %v, want nil", got)
	}
}

// TestConditionsKeepTheirTime across managers, and not across runs of the pod.
func TestConditionsKeepTheirTime(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		first := w.run(m, Record{Pod: spec("web", "sleep")})
		before := first.Status()
		ready := conditionOf(before, corev1.PodReady)
		if ready == nil || ready.Status != corev1.ConditionTrue {
			t.Fatalf("ready: %+v", ready)
		}
		m.Close()
		time.Sleep(time.Hour)
		m = w.open()
		p := w.find(m, "web")
		now := p.Status()
		for _, c := range before.Conditions {
			if got := conditionOf(now, c.Type); got == nil || got.LastTransitionTime.Unix() != c.LastTransitionTime.Unix() {
				t.Errorf("%s: %+v, want %v", c.Type, got, c.LastTransitionTime)
			}
		}
		if err := p.Stop(t.Context(), noGrace()); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := conditionOf(p.Status(), corev1.PodScheduled).LastTransitionTime; time.Since(got.Time) > time.Minute {
			t.Errorf("the next run has the condition since %v", got)
		}
	})
}
