package cri

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestVMDies: the VM's end is an event. Containers end with 137 and VMKilled, never Completed, and the pod is
// cleaned up.
func TestVMDies(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	id := startContainer(t.Context(), t, s, pod, containerConfig("main"), nil)
	events := subscribe(t, s)
	s.shim(w, pod).EndVM("VMKilled: killed by signal 9")
	wait(t, events, pod, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	st, err := s.ContainerStatus(t.Context(), id, false)
	if err != nil || st.Status.ExitCode != 137 || st.Status.Reason != "VMKilled" {
		t.Errorf("container: %v %v", st, err)
	}
	ps, err := s.PodSandboxStatus(t.Context(), pod, false)
	if err != nil || ps.Status.State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("pod: %v %v", ps, err)
	}
	w.Clean(t)
	if _, err := s.CreateContainer(t.Context(), pod, containerConfig("late"), nil); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a container for a dead pod: %v", err)
	}
}
