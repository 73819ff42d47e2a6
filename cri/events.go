package cri

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/internal/hub"
)

// backlog is the number of events that a subscriber may be behind. Beyond it, the subscription ends with an error, and
// the client must list the objects again.
const backlog = 1024

// eventType maps the engine's events to the CRI's.
var eventType = map[engine.EventKind]runtimeapi.ContainerEventType{
	engine.Created: runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT,
	engine.Started: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
	engine.Stopped: runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
	engine.Deleted: runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
}

// GetContainerEvents sends every event of containers and pods to ch until ctx ends (nil), the engine closes, or the
// receiver is too far behind (an error with codes.ResourceExhausted). established, which may be nil, is called with nil
// when the subscription is active. An event about a pod itself has the pod's id as container id.
func (s *Service) GetContainerEvents(
	ctx context.Context, ch chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	sub, err := s.engine.Subscribe(backlog)
	if err != nil {
		return err
	}
	defer sub.Close()
	if established != nil {
		established(nil)
	}
	for {
		select {
		case event, ok := <-sub.Events():
			if !ok && errors.Is(sub.Err(), hub.ErrBehind) {
				return failure.New(errdefs.ErrResourceExhausted, "events: %v", sub.Err())
			}
			if !ok {
				return failure.New(errdefs.ErrUnavailable, "events: %v", sub.Err())
			}
			if foreign(&event.Pod) {
				continue
			}
			select {
			case ch <- s.records.eventOf(event):
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *records) eventOf(e engine.Event) *runtimeapi.ContainerEventResponse {
	if e.Kind == engine.Deleted {
		defer r.forget(e) // this event may come after the removal, and reading it adds the record again
	}
	return &runtimeapi.ContainerEventResponse{
		ContainerId: e.ID, ContainerEventType: eventType[e.Kind], CreatedAt: e.At.UnixNano(),
		PodSandboxStatus: r.podStatus(&e.Pod), ContainersStatuses: r.statuses(&e.Pod),
	}
}

// forget forgets the records of removed objects. A pod's own end is its last event.
func (r *records) forget(e engine.Event) {
	r.containers.forget(e.ID)
	if e.ID != e.Pod.ID {
		return
	}
	r.pods.forget(e.ID)
	for _, c := range e.Pod.Containers {
		r.containers.forget(c.ID)
	}
}
