package endpoint

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/retry"
)

// relistEvery is the interval between lists of a runtime without events, as in a kubelet.
const relistEvery = time.Second

// uidLabel is the label of sandboxes and containers with the pod's UID, as kubelets set it.
const uidLabel = "io.kubernetes.pod.uid"

// relist derives events from the lists of a runtime without events.
type relist struct {
	runtime internalapi.RuntimeService
	log     *slog.Logger
}

// run sends an event for each pod that has changed since its start, until ctx ends.
func (r *relist) run(
	ctx context.Context, events chan<- *runtimeapi.ContainerEventResponse,
	established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	established(nil)
	for last := map[string]string{}; ; {
		now, err := r.list(ctx)
		if err == nil {
			err = notify(ctx, events, changed(last, now))
			last = now
		}
		if err != nil && ctx.Err() == nil {
			r.log.Warn("listing the runtime's pods failed, retrying", "error", err)
		}
		if !retry.Sleep(ctx, relistEvery, nil) {
			return ctx.Err()
		}
	}
}

// changed returns the UIDs of pods with new, changed or removed parts.
func changed(last, now map[string]string) map[string]bool {
	pods := map[string]bool{}
	for what, uid := range now {
		if _, before := last[what]; !before {
			pods[uid] = true
		}
	}
	for what, uid := range last {
		if _, still := now[what]; !still {
			pods[uid] = true
		}
	}
	return pods
}

// notify sends an event for each pod. It blocks until the subscriber has read them all.
func notify(ctx context.Context, events chan<- *runtimeapi.ContainerEventResponse, pods map[string]bool) error {
	for uid := range pods {
		event := &runtimeapi.ContainerEventResponse{
			PodSandboxStatus: &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}},
		}
		select {
		case events <- event:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// list returns the UIDs of the runtime's pods, by the IDs and states of their parts.
func (r *relist) list(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
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
