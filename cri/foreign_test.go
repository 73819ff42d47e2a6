package cri

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestForeign: a client of the CRI neither sees nor ends a pod of a door in another process.
func TestForeign(t *testing.T) {
	t.Parallel()
	w := enginetest.New()
	e := enginetest.Open(t, w.In(enginetest.Options(t, enginetest.Roots(t))))
	s := New(e, Options{})
	events := make(chan *runtimeapi.ContainerEventResponse, 1)
	established := make(chan struct{})
	go func() {
		_ = s.GetContainerEvents(t.Context(), events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(established) })
	}()
	<-established
	id, err := e.StartPod(t.Context(), engine.PodRequest{Key: engine.DoorKey("oci", "c1"), Record: []byte(`"opaque"`)})
	if err != nil {
		t.Fatal(err)
	}
	if list, err := s.ListPodSandbox(t.Context(), nil); err != nil || len(list) != 0 {
		t.Errorf("listed: %v, %v", list, err)
	}
	if _, err := s.PodSandboxStatus(t.Context(), id, false); !failure.NotFound(err) {
		t.Errorf("status: %v", err)
	}
	if err := s.StopPodSandbox(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := s.RemovePodSandbox(t.Context(), id); err != nil {
		t.Error(err)
	}
	if p, err := e.Pod(id); err != nil || !p.Ready {
		t.Errorf("the door's pod: %+v, %v", p, err)
	}
	if err := e.RemovePod(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	select {
	case event := <-events:
		t.Errorf("got event %v", event)
	default:
	}
}
