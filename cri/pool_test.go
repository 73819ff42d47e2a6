package cri

import (
	"context"
	"testing"
	"time"
)

// The pool: a ready clone becomes the pod, another is made after that, and
// none is left at the end.
func TestPool(t *testing.T) {
	w := newWorld()
	o := testOptions(t, testRoots(t))
	o.Pool = 1
	s := fakeEngine(t, w, o)
	ids := map[string]bool{}
	for i, name := range []string{"a", "b", "c"} {
		id, err := s.RunPodSandbox(t.Context(), podConfig(name), "")
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && !ids[id] {
			t.Errorf("pod %s is %s, not the pool's %v", name, id, ids)
		}
		facts, err := s.PodFacts(t.Context(), id)
		if err != nil || facts.Pooled != (i > 0) {
			t.Errorf("pod %s: %+v %v", name, facts, err)
		}
		if pods, _ := s.ListPodSandbox(t.Context(), nil); len(pods) != i+1 {
			t.Errorf("a member of the pool is seen: %v", pods)
		}
		ids = map[string]bool{s.member(t): true}
	}
	if r, err := s.Reap(t.Context()); err != nil || r.Removed > 0 || len(r.Failed) > 0 {
		t.Errorf("reap beside a pool: %+v %v", r, err)
	}
	cold := podConfig("cold")
	cold.Annotations = map[string]string{"io.bulkhead.internal/template": "off"}
	if id, err := s.RunPodSandbox(t.Context(), cold, ""); err != nil || ids[id] {
		t.Errorf("a cold pod took the pool's: %v", err)
	}
	for _, p := range s.all() {
		if err := s.RemovePodSandbox(t.Context(), p.id); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	nothingLeft(t, s)
	w.clean(t)
}

// TestPoolGivesUpWhileClosing: members that are given up just when the engine is
// being closed end with it.
func TestPoolGivesUpWhileClosing(t *testing.T) {
	for name, giveUp := range map[string]func(s *Service){
		"another kind is wanted": func(s *Service) { s.pool.want(kind{memory: 1}) },
		"its shim has died": func(s *Service) {
			dead := make(chan struct{})
			close(dead)
			s.pool.members[0].conn.done = dead
			if m := s.pool.take(context.Background(), s.pool.kind); m != nil {
				t.Errorf("taken: %v", m)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			o := testOptions(t, testRoots(t))
			o.Pool = 1
			s := fakeEngine(t, w, o)
			id, err := s.RunPodSandbox(t.Context(), podConfig("p"), "")
			if err != nil {
				t.Fatal(err)
			}
			if err := s.RemovePodSandbox(t.Context(), id); err != nil {
				t.Error(err)
			}
			s.member(t)
			s.setClosed(true)
			giveUp(s)
			s.setClosed(false)
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
			nothingLeft(t, s)
			w.clean(t)
		})
	}
}

func (s *Service) setClosed(closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = closed
}

// member waits for the pool to be full and returns its member's id.
func (s *Service) member(t *testing.T) string {
	t.Helper()
	s.pool.refill(0) // as a pod's end does
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		s.pool.mu.Lock()
		n := len(s.pool.members)
		id := ""
		if n > 0 {
			id = s.pool.members[0].record.ID
		}
		s.pool.mu.Unlock()
		if id != "" {
			return id
		}
	}
	t.Fatal("the pool stays empty")
	return ""
}
