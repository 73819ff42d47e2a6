package manager

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
)

// TestFree: the runtime has no objects of a freed pod, but its status and logs remain, also for the next manager. A
// running pod keeps everything.
func TestFree(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m := w.open()
		runs, p := w.run(m, Record{Pod: spec("runs")}), w.run(m, Record{Pod: spec("web")})
		log := filepath.Join(p.Dir(), logsDir, "kept")
		if err := os.WriteFile(log, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.Evict(t.Context(), 1, Eviction{Reason: "Evicted", Message: "too little disk"}); err != nil {
			t.Fatal(err)
		}
		for _, one := range []*Pod{runs, p, p} {
			if err := one.Free(t.Context()); err != nil {
				t.Error(err)
			}
		}
		list, err := w.runtime.ListPodSandbox(t.Context(), nil)
		if err != nil || len(list) != 1 || list[0].GetId() != runs.Sandbox() {
			t.Errorf("left: %v, %v", list, err)
		}
		unwritten := w.run(m, Record{Pod: spec("unwritten")}) // the next manager would not know its end
		at := filepath.Join(unwritten.Dir(), recordFile)
		if err := errors.Join(os.Remove(at), os.Mkdir(at, 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := unwritten.Stop(t.Context(), new(int64)); err != nil {
			t.Fatal(err)
		}
		before := w.runtime.left()
		if err := unwritten.Free(t.Context()); err == nil || w.runtime.left() != before {
			t.Errorf("a pod with an unsaved end: %v, %d of %d left", err, w.runtime.left(), before)
		}
		if err := errors.Join(os.Remove(at), unwritten.Free(t.Context())); err != nil || w.runtime.left() == before {
			t.Errorf("once it is saved: %v", err)
		}
		m.Close()
		next, err := w.open().Get(p.UID())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if status := next.Status(); status.Phase != corev1.PodFailed || status.Reason != "Evicted" || !next.HasEnded() {
			t.Errorf("%s, %s", status.Phase, status.Reason)
		}
		if _, err := os.Stat(log); err != nil {
			t.Error(err)
		}
		if err := next.Remove(t.Context(), false); err != nil || !next.Removed() {
			t.Errorf("removed afterwards: %v", err)
		}
	})
}
