package engine_test

import (
	"errors"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/hub"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/network"
)

// The shim is killed under a running engine. Another one takes over.
func TestShimDies(t *testing.T) {
	w := enginetest.New()
	o := w.In(enginetest.Options(t, enginetest.Roots(t)))
	enginetest.LoadImage(t, o.Images)
	e := enginetest.Open(t, o)
	pod, err := e.StartPod(t.Context(), podRequest("p"))
	if err != nil {
		t.Fatal(err)
	}
	id := startContainer(t.Context(), t, e, pod, "main", "true")
	events, err := e.Subscribe(16)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	w.Shim(e.StateDir(pod)).Die()
	// An exit event after the death shows that the engine still listens.
	deadline := time.Now().Add(10 * time.Second)
	for e.ShimDone(t, pod) != w.Shim(e.StateDir(pod)).Done() {
		if time.Now().After(deadline) {
			t.Fatal("no other shim took over")
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.Shim(e.StateDir(pod)).Exit(id, 5, "Error")
	timeout := time.After(10 * time.Second)
	for {
		select {
		case event := <-events.Events():
			if event.ID == id && event.Kind == engine.Stopped {
				return
			}
		case <-timeout:
			t.Fatal("no event of the container's exit")
		}
	}
}

// A subscriber that does not read is disconnected and does not block others.
func TestSlowSubscriber(t *testing.T) {
	w := enginetest.New()
	e := enginetest.Open(t, w.In(enginetest.Options(t, enginetest.Roots(t))))
	events, err := e.Subscribe(1)
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	for _, name := range []string{"a", "b", "c"} {
		if _, err := e.StartPod(t.Context(), podRequest(name)); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for range events.Events() {
		n++
	}
	if n != 1 || !errors.Is(events.Err(), hub.ErrBehind) {
		t.Errorf("%d events, %v", n, events.Err())
	}
}

// An engine opens the network of an adopted pod at once, and not at the next start. The network watches the host's
// addresses.
func TestAdoptionSeesToTheNetwork(t *testing.T) {
	w := enginetest.New()
	o := w.In(enginetest.Options(t, enginetest.Roots(t)))
	first, err := engine.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := first.StartPod(t.Context(), podRequest("p")); err != nil {
		t.Fatal(err)
	}
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	opened := make(chan network.Kind, 8)
	open := o.Network
	o.Network = func(kind network.Kind) (network.Provider, error) {
		opened <- kind
		return open(kind)
	}
	enginetest.Open(t, o)
	select {
	case kind := <-opened:
		if kind != network.KindUser {
			t.Errorf("the network %s", kind)
		}
	case <-time.After(10 * time.Second):
		t.Error("the pod's network was not opened")
	}
}
