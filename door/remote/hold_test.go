package remote_test

import (
	"context"
	"testing"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/remote"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestHold: the process stays exactly as long as a door's pod runs.
func TestHold(t *testing.T) {
	t.Parallel()
	w, o := fake(t)
	p := serve(t, o)
	c := p.door("oci")
	if _, err := p.e.StartPod(t.Context(), engine.PodRequest{Key: "ns/p"}); err != nil { // not a pod of a door in another process
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

	next := serve(t, o) // adopts the pod
	next.kept(t, 1)
	w.Shim(next.e.StateDir(second.GetId())).EndVM("the guest's kernel panicked")
	next.kept(t, 0)
}

// TestStartHolds: a pod holds the process before the call that starts it releases its own hold.
func TestStartHolds(t *testing.T) {
	t.Parallel()
	_, o := fake(t)
	p := &process{o: o, e: enginetest.Open(t, o)}
	s := remote.New(p.e, p.hold) // not served, so it does not receive events
	r := request("c")
	r.Door = "oci"
	if _, err := s.Start(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if n := p.holds.Load(); n != 1 {
		t.Errorf("%d holds", n)
	}
}

// TestClientsGone: a client may disconnect during a start or stop. The process is held until the call is done, so that
// it does not exit as idle.
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
