package engine

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/flock"
)

// TestOtherInstances checks that another instance's records can be read without its engine, and that it is reaped
// only if its engine does not run.
func TestOtherInstances(t *testing.T) {
	t.Parallel()
	e := reapEngine(t, &scriptedShims{})
	st, err := store.Open(e.o.Roots, "other")
	if err != nil {
		t.Fatal(err)
	}
	type ends struct{ starting, ended bool }
	want := map[string]ends{}
	for i, phase := range []store.Phase{store.Starting, store.Ready, store.Stopped, store.Removing} {
		id := idOf(string(rune('1' + i)))
		r := &store.Pod{ID: id, Key: "key/" + id, Phase: phase}
		if err := errors.Join(st.Reserve(r.Key, id), st.MakePod(id), st.PutPod(r)); err != nil {
			t.Fatal(err)
		}
		want[id] = ends{phase == store.Starting, phase == store.Stopped || phase == store.Removing}
	}
	damaged := idOf("a")
	if err := errors.Join(st.Reserve("key/a", damaged), st.MakePod(damaged),
		os.WriteFile(filepath.Join(st.Dir(damaged), "pod.json"), []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if others, err := e.Instances(); err != nil || !slices.Equal(others, []string{"other"}) {
		t.Errorf("%q, %v", others, err)
	}
	pods, broken, err := e.Records("other")
	if err != nil || len(pods) != len(want) || len(broken) != 1 || broken[damaged] == nil {
		t.Errorf("%+v, %v, %v", pods, broken, err)
	}
	for _, p := range pods {
		if w, ok := want[p.ID]; !ok || p.Starting != w.starting || p.Ended != w.ended {
			t.Errorf("%+v", p)
		}
	}
	for _, name := range []string{"", "no/name"} {
		if _, _, err := e.Records(name); err == nil {
			t.Errorf("records of %q", name)
		}
		if _, err := e.ReapInstance(t.Context(), name); err == nil {
			t.Errorf("reaped %q", name)
		}
	}
	lock, err := flock.Try(st.LockPath())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.ReapInstance(t.Context(), "other"); !errors.Is(err, flock.ErrLocked) {
		t.Errorf("beside its engine: %v", err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	if r, err := e.ReapInstance(t.Context(), "other"); err != nil || r.Removed != 3 || len(r.Failed) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if ids, err := st.PodIDs(); err != nil || len(ids) != 2 {
		t.Errorf("left %q, %v", ids, err)
	}
}
