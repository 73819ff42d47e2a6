package endpoint

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// relistEvery is how often a runtime without events is asked what there is, as by a kubelet.
const relistEvery = time.Second

// uidLabel names the pod of a sandbox and a container, as kubelets label them.
const uidLabel = "io.kubernetes.pod.uid"

// relist tells of changes in the lists of a runtime that has no events: one for all who listen, while somebody
// does.
type relist struct {
	ctx     context.Context // ends with the runtime
	runtime internalapi.RuntimeService
	log     *slog.Logger
	work    sync.WaitGroup

	mu        sync.Mutex
	listeners map[chan<- *runtimeapi.ContainerEventResponse]bool
	looks     bool              // there is somebody who asks
	last      map[string]string // the UIDs of pods, by what there is of them
}

func newRelist(ctx context.Context, runtime internalapi.RuntimeService, log *slog.Logger) *relist {
	return &relist{ctx: ctx, runtime: runtime, log: log, listeners: map[chan<- *runtimeapi.ContainerEventResponse]bool{}}
}

// wait returns when nobody asks any more, after the runtime's end.
func (r *relist) wait() { r.work.Wait() }

// follow sends an event for each change of a pod until ctx ends.
func (r *relist) follow(
	ctx context.Context, events chan<- *runtimeapi.ContainerEventResponse,
	established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	r.mu.Lock()
	r.listeners[events] = true
	if !r.looks && r.ctx.Err() == nil {
		r.looks = true
		r.work.Go(r.run)
	}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.listeners, events)
	}()
	established(nil)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// run asks until nobody listens.
func (r *relist) run() {
	tick := time.NewTicker(relistEvery)
	defer tick.Stop()
	for {
		now, err := r.list()
		if err != nil && r.ctx.Err() == nil {
			r.log.Warn("the runtime is asked again what there is", "error", err)
		}
		r.mu.Lock()
		if err == nil {
			r.tell(now)
		}
		if len(r.listeners) == 0 || r.ctx.Err() != nil {
			r.looks = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		select {
		case <-tick.C:
		case <-r.ctx.Done():
		}
	}
}

// tell takes in what there is now. It is called with mu held, and does not block.
func (r *relist) tell(now map[string]string) {
	changed := map[string]bool{}
	for what, uid := range now {
		if _, before := r.last[what]; !before {
			changed[uid] = true
		}
	}
	for what, uid := range r.last {
		if _, still := now[what]; !still {
			changed[uid] = true
		}
	}
	r.last = now
	for uid := range maps.Keys(changed) {
		event := &runtimeapi.ContainerEventResponse{
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}},
		}
		for listener := range r.listeners {
			select {
			case listener <- event:
			default: // it has more to read than it needs to look again
			}
		}
	}
}

// list is what the runtime has: the UIDs of pods, by the ids and states of their parts.
func (r *relist) list() (map[string]string, error) {
	ctx, cancel := context.WithTimeout(r.ctx, callTimeout)
	defer cancel()
	sandboxes, err := r.runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the pods: %w", err)
	}
	containers, err := r.runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list the containers: %w", err)
	}
	now := map[string]string{}
	for _, s := range sandboxes {
		now[fmt.Sprint(s.GetId(), s.GetState())] = s.GetMetadata().GetUid()
	}
	for _, c := range containers {
		now[fmt.Sprint(c.GetId(), c.GetState())] = c.GetLabels()[uidLabel]
	}
	return now, nil
}
