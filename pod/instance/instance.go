// Package instance reads back a pod's sandboxes and container instances from the CRI.
package instance

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/config"
)

// Instance is one CRI container: one run of a container of the pod. A nil Instance has not ended and has no id.
type Instance struct {
	Sandbox  string
	Restarts int32
	Status   *runtimeapi.ContainerStatus
}

// ID returns the runtime's id, empty for a nil Instance.
func (i *Instance) ID() string {
	if i == nil {
		return ""
	}
	return i.Status.GetId()
}

// Exited reports whether i is known to have ended.
func (i *Instance) Exited() bool {
	return i != nil && i.Status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
}

// Created reports whether i was created and never started.
func (i *Instance) Created() bool {
	return i != nil && i.Status.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED
}

// Time converts a CRI time stamp; 0 is the zero time.
func Time(stamp int64) time.Time {
	if stamp == 0 {
		return time.Time{}
	}
	return time.Unix(0, stamp)
}

// Sandboxes returns the pod's sandboxes, the newest first.
func Sandboxes(ctx context.Context, runtime internalapi.RuntimeService, uid types.UID) ([]*runtimeapi.PodSandbox, error) {
	list, err := runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: selector(uid)})
	if err != nil {
		return nil, fmt.Errorf("list sandboxes of the pod: %w", err)
	}
	slices.SortStableFunc(list, func(a, b *runtimeapi.PodSandbox) int {
		return cmp.Or(-cmp.Compare(a.GetMetadata().GetAttempt(), b.GetMetadata().GetAttempt()), -cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()))
	})
	return list, nil
}

// Containers returns the pod's containers, in no order.
func Containers(ctx context.Context, runtime internalapi.RuntimeService, uid types.UID) ([]*runtimeapi.Container, error) {
	list, err := runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: selector(uid)})
	if err != nil {
		return nil, fmt.Errorf("list containers of the pod: %w", err)
	}
	return list, nil
}

func selector(uid types.UID) map[string]string {
	return map[string]string{config.LabelUID: string(uid)}
}

// Of returns the instances of the named container among listed, the newest first. It takes statuses from known, by id,
// instead of asking the runtime. Instances that no longer exist are left out.
func Of(ctx context.Context, runtime internalapi.RuntimeService, listed []*runtimeapi.Container, name string,
	known map[string]*runtimeapi.ContainerStatus,
) ([]*Instance, error) {
	var out []*Instance
	for _, item := range listed {
		if item.GetLabels()[config.LabelContainer] != name {
			continue
		}
		id := item.GetId()
		status := known[id]
		if status == nil {
			response, err := runtime.ContainerStatus(ctx, id, false)
			if Gone(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("status of container %s: %w", name, err)
			}
			status = response.GetStatus()
		}
		out = append(out, &Instance{Sandbox: item.GetPodSandboxId(), Restarts: restartCount(item), Status: status})
	}
	slices.SortStableFunc(out, func(a, b *Instance) int {
		return cmp.Or(-cmp.Compare(a.Restarts, b.Restarts), -cmp.Compare(a.Status.GetCreatedAt(), b.Status.GetCreatedAt()))
	})
	return out, nil
}

// restartCount reads the kubelet's annotation, else the CRI's attempt.
func restartCount(item *runtimeapi.Container) int32 {
	if count, err := strconv.ParseInt(item.GetAnnotations()[config.AnnotationRestarts], 10, 32); err == nil {
		return int32(count)
	}
	return int32(item.GetMetadata().GetAttempt())
}

// Unless returns err with the step and the id, nil if the runtime has no object with that id.
func Unless(err error, step, id string) error {
	if err == nil || Gone(err) {
		return nil
	}
	return fmt.Errorf("%s %s: %w", step, id, err)
}

// Gone reports whether err means that the runtime has no object with that id.
func Gone(err error) bool { return err != nil && status.Code(err) == codes.NotFound }
