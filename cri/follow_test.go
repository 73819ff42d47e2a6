package cri

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The machine's end is an event: containers end with 137 and VMKilled, never
// Completed, and the pod is cleared up.
func TestMachineDies(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	id := startContainer(t.Context(), t, s, pod, containerConfig("main"), nil)
	events := subscribe(t, s)
	f := w.shim(s, pod)
	f.change(func() { f.state, f.reason = "stopped", "VMKilled: killed by signal 9" })
	wait(t, events, pod, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	st, err := s.ContainerStatus(t.Context(), id, false)
	if err != nil || st.Status.ExitCode != 137 || st.Status.Reason != "VMKilled" {
		t.Errorf("container: %v %v", st, err)
	}
	ps, err := s.PodSandboxStatus(t.Context(), pod, false)
	if err != nil || ps.Status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("pod: %v %v", ps, err)
	}
	w.clean(t)
	if _, err := s.CreateContainer(t.Context(), pod, containerConfig("late"), nil); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a container for a dead pod: %v", err)
	}
}

// The shim is killed under a running engine: another takes over.
func TestShimDies(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	id := startContainer(t.Context(), t, s, pod, containerConfig("main"), nil)
	events := subscribe(t, s)
	w.shim(s, pod).die()
	// A start that is told after the death proves that somebody listens.
	deadline := time.Now().Add(10 * time.Second)
	for {
		if c, err := s.find1(t, pod).shim(); err == nil && c.done == w.shim(s, pod).done {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no other shim took over")
		}
		time.Sleep(5 * time.Millisecond)
	}
	fakeTask{fakeShim: w.shim(s, pod)}.exit(id, 5, "Error")
	wait(t, events, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}
