package cri

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A subscriber that does not read is cut off, and holds nobody up.
func TestSlowSubscriber(t *testing.T) {
	s := fakeEngine(t, newWorld(), testOptions(t, testRoots(t)))
	id, err := s.RunPodSandbox(t.Context(), podConfig("p"), "")
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan *runtimeapi.ContainerEventResponse)
	result, ready := make(chan error, 1), make(chan struct{})
	go func() {
		result <- s.GetContainerEvents(t.Context(), events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(ready) })
	}()
	<-ready
	for range backlog + 2 {
		s.events.emit(s.find1(t, id), id, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	}
	for {
		select {
		case <-events:
			continue
		case err := <-result:
			if status.Code(err) != codes.ResourceExhausted {
				t.Errorf("%v, want %v", err, codes.ResourceExhausted)
			}
			return
		}
	}
}

func subscribe(t *testing.T, s *Service) chan *runtimeapi.ContainerEventResponse {
	t.Helper()
	events, ready := make(chan *runtimeapi.ContainerEventResponse, 16), make(chan struct{})
	go s.GetContainerEvents(t.Context(), events, func(runtimeapi.RuntimeService_GetContainerEventsClient) { close(ready) })
	<-ready
	return events
}

func wait(t *testing.T, events chan *runtimeapi.ContainerEventResponse, id string, kind runtimeapi.ContainerEventType) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		select {
		case e := <-events:
			if e.ContainerId == id && e.ContainerEventType == kind {
				return
			}
		case <-timeout:
			t.Fatalf("no event %v of %s", kind, short(id))
		}
	}
}
