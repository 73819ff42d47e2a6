package cri

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestNextEngine: the next engine restores the last one's state, with and without living shims.
func TestNextEngine(t *testing.T) {
	w, s, pod, o := fakePodOf(t)
	ctx := t.Context()
	running := startContainer(ctx, t, s, pod, containerConfig("running"), nil)
	ended := startContainer(ctx, t, s, pod, containerConfig("ended"), nil)
	before, err := s.ContainerStatus(ctx, running, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.Open(ctx, w.In(o)); err == nil {
		t.Error("a second engine of the instance was started")
	}
	s.Close(context.Background())
	s.shim(w, pod).Exit(ended, 7, "Error") // while no engine runs

	s = fakeService(t, w, o)
	after, err := s.ContainerStatus(ctx, running, false)
	if err != nil || after.Status.String() != before.Status.String() {
		t.Errorf("status after: %v %v\nbefore: %v", after, err, before)
	}
	st, err := s.ContainerStatus(ctx, ended, false)
	if err != nil || st.Status.ExitCode != 7 {
		t.Errorf("a container that ended meanwhile: %v %v", st, err)
	}
	s.Close(context.Background())

	// The shim was killed meanwhile.
	s.shim(w, pod).Die()
	s = fakeService(t, w, o)
	if _, err := s.ContainerStatus(ctx, running, false); err != nil {
		t.Error(err)
	}
	if !slices.Contains(w.Calls(), "Adopt") {
		t.Error("no shim was adopted")
	}
	s.Close(context.Background())

	// The host was rebooted: there is no state and no process.
	s.shim(w, pod).Die()
	w.Reboot()
	if err := os.RemoveAll(o.Roots.State); err != nil {
		t.Fatal(err)
	}
	s = fakeService(t, w, o)
	deadline, cancel := context.WithTimeout(ctx, testdeadline.For(10*time.Second))
	defer cancel()
	stopped := func() bool {
		r, err := s.store.Pod(pod)
		return err == nil && r.Phase == store.Stopped
	}
	for !stopped() && deadline.Err() == nil {
		time.Sleep(5 * time.Millisecond) // waiting for an event would be a race
	}
	st, err = s.ContainerStatus(ctx, running, false)
	if err != nil || st.Status.ExitCode != 137 || st.Status.Reason != "VMKilled" {
		t.Errorf("after a reboot: %v %v", st, err)
	}
	if err := s.RemovePodSandbox(ctx, pod); err != nil {
		t.Fatal(err)
	}
	enginetest.NothingLeft(t, s.o)
}
