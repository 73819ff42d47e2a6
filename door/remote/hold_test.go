package remote_test

import (
	"context"
	"testing"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/remote"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/enginetest"
)

// TestHold: the process stays while a door's pod runs, and no longer.
func TestHold(t *testing.T) {
	t.Parallel()
	w, o := fake(t)
	p := serve(t, o)
	c := p.door("oci")
	if _, err := p.e.StartPod(t.Context(), engine.PodRequest{Key: "ns/p"}); err != nil { // its own door's business
		t.Fatal(err)
	}
	p.kept(t, 0)
	first := start(t, c, "a")
	p.kept(t, 1)
	second := start(t, c, "b")
	p.kept(t, 1)
	if err := c.Stop(t.Context(), first.GetId()); err != nil {
		t.Fatal(err)
	}
	p.kept(t, 1)
	p.end()

	next := serve(t, o) // which adopts the pod
	next.kept(t, 1)
	w.Shim(next.e.StateDir(second.GetId())).EndVM("the guest's kernel panicked")
	next.kept(t, 0)
}

// TestStartHolds: a pod keeps the process before the call that starts it lets go of it.
func TestStartHolds(t *testing.T) {
	t.Parallel()
	_, o := fake(t)
	p := &process{o: o, e: enginetest.Open(t, o)}
	s := remote.New(p.e, p.hold) // not served: nobody follows the events
	r := request("c")
	r.Door = "oci"
	if _, err := s.Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if n := p.holds.Load(); n != 1 {
		t.Errorf("%d holds", n)
	}
}

// TestClientsGone: who asked for a start or an end may have gone. The process is kept
// until that is done, so that idling does not cut it off.
func TestClientsGone(t *testing.T) {
	t.Parallel()
	_, o := fake(t)
	p := &process{o: o, e: enginetest.Open(t, o)}
	s := remote.New(p.e, p.hold)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := request("c")
	r.Door = "oci"
	started, err := s.Start(gone, r)
	if err != nil {
		t.Fatal(err)
	}
	if n := p.holds.Load(); n != 1 {
		t.Errorf("%d holds", n)
	}
	if _, err := s.Remove(gone, &enginev1.RemoveRequest{Door: "oci", Id: started.GetPod().GetId()}); err != nil {
		t.Error(err)
	}
	if pods := p.e.Pods(); len(pods) != 0 {
		t.Errorf("left: %v", pods)
	}
}
