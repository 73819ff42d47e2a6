package cri

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// backlog is how many events a subscriber may be behind before it is cut off:
// it must list anew then, which its error tells it.
const backlog = 1024

// hub passes events on to any number of subscribers, none of which can hold
// the engine up.
type hub struct {
	mu     sync.Mutex
	closed bool
	subs   map[*subscriber]struct{}
}

type subscriber struct {
	queue chan *runtimeapi.ContainerEventResponse
	lost  bool // set before queue is closed
}

// emit tells that something happened to a container, or to the pod itself when
// id is its own.
func (h *hub) emit(p *pod, id string, kind runtimeapi.ContainerEventType) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.subs) == 0 {
		return
	}
	event := &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, CreatedAt: time.Now().UnixNano(),
		PodSandboxStatus: p.status(), ContainersStatuses: p.statuses(),
	}
	for sub := range h.subs {
		select {
		case sub.queue <- event:
		default:
			sub.lost = true
			h.drop(sub)
		}
	}
}

// drop is called with mu held.
func (h *hub) drop(sub *subscriber) {
	if _, ok := h.subs[sub]; ok {
		delete(h.subs, sub)
		close(sub.queue)
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for sub := range h.subs {
		h.drop(sub)
	}
}

// GetContainerEvents sends every event of containers and pods to ch until ctx
// ends (nil), the engine closes, or the receiver is too far behind (an error
// with codes.ResourceExhausted). established, which may be nil, is called with
// nil when nothing can be missed any more. An event about a pod itself has the
// pod's id as container id.
func (s *Service) GetContainerEvents(ctx context.Context, ch chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	sub := &subscriber{queue: make(chan *runtimeapi.ContainerEventResponse, backlog)}
	s.events.mu.Lock()
	if s.events.closed {
		s.events.mu.Unlock()
		return errClosed
	}
	if s.events.subs == nil {
		s.events.subs = map[*subscriber]struct{}{}
	}
	s.events.subs[sub] = struct{}{}
	s.events.mu.Unlock()
	defer func() {
		s.events.mu.Lock()
		s.events.drop(sub)
		s.events.mu.Unlock()
	}()
	if established != nil {
		established(nil)
	}
	for {
		select {
		case event, ok := <-sub.queue:
			if !ok && sub.lost {
				return errorf(codes.ResourceExhausted, "events: the receiver is more than %d behind; list, and subscribe again", backlog)
			}
			if !ok {
				return errClosed
			}
			select {
			case ch <- event:
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}
