package engine_test

import (
	"context"
	"testing"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/enginetest"
)

// The pool: a ready clone becomes the pod, another is made after that, and
// none is left at the end.
func TestPool(t *testing.T) {
	w := enginetest.New()
	o := w.In(enginetest.Options(t, enginetest.Roots(t)))
	o.Pool = 1
	e := enginetest.Open(t, o)
	ids := map[string]bool{}
	for i, name := range []string{"a", "b", "c"} {
		id, err := e.StartPod(t.Context(), podRequest(name))
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && !ids[id] {
			t.Errorf("pod %s is %s, not the pool's %v", name, id, ids)
		}
		facts, err := e.Facts(t.Context(), id)
		if err != nil || facts.Pooled != (i > 0) {
			t.Errorf("pod %s: %+v %v", name, facts, err)
		}
		if pods := e.Pods(); len(pods) != i+1 {
			t.Errorf("a member of the pool is seen: %v", pods)
		}
		ids = map[string]bool{e.Member(t): true}
	}
	if r, err := e.Reap(t.Context()); err != nil || r.Removed > 0 || len(r.Failed) > 0 {
		t.Errorf("reap beside a pool: %+v %v", r, err)
	}
	cold := podRequest("cold")
	cold.Cold = true
	if id, err := e.StartPod(t.Context(), cold); err != nil || ids[id] {
		t.Errorf("a cold pod took the pool's: %v", err)
	}
	for _, p := range e.Pods() {
		if err := e.RemovePod(t.Context(), p.ID); err != nil {
			t.Error(err)
		}
	}
	if err := e.Close(context.Background()); err != nil {
		t.Error(err)
	}
	enginetest.NothingLeft(t, o)
	w.Clean(t)
}

// TestPoolGivesUpWhileClosing: members that are given up just when the engine is
// being closed end with it.
func TestPoolGivesUpWhileClosing(t *testing.T) {
	for name, giveUp := range map[string]func(e *engine.Engine){
		"another kind is wanted": func(e *engine.Engine) { e.WantAnother() },
		"its shim has died": func(e *engine.Engine) {
			if e.TakeDead() {
				t.Error("taken")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := enginetest.New()
			o := w.In(enginetest.Options(t, enginetest.Roots(t)))
			o.Pool = 1
			e := enginetest.Open(t, o)
			id, err := e.StartPod(t.Context(), podRequest("p"))
			if err != nil {
				t.Fatal(err)
			}
			if err := e.RemovePod(t.Context(), id); err != nil {
				t.Error(err)
			}
			e.Member(t)
			e.SetClosed(true)
			giveUp(e)
			e.SetClosed(false)
			if err := e.Close(context.Background()); err != nil {
				t.Error(err)
			}
			enginetest.NothingLeft(t, o)
			w.Clean(t)
		})
	}
}
