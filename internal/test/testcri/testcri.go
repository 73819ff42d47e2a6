// Package testcri is a CRI runtime for tests: its containers have no VM and run until they are stopped, and each call
// takes a while.
package testcri

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/hub"
)

// uidLabel is the label with the UID on each pod and container.
const uidLabel = "io.kubernetes.pod.uid"

// Runtime is a runtime. It is safe for concurrent use.
type Runtime struct {
	internalapi.RuntimeService
	internalapi.ImageManagerService

	delay time.Duration
	next  atomic.Int64

	mu         sync.Mutex
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*container
	pods       map[string]*pod // by UID
	events     hub.Hub[*runtimeapi.ContainerEventResponse]
}

type container struct {
	sandbox string
	config  *runtimeapi.ContainerConfig
	status  *runtimeapi.ContainerStatus
}

// pod has the ids of a pod's sandboxes and containers.
type pod struct{ sandboxes, containers map[string]bool }

// backlog is the number of events that a listener may be behind.
const backlog = 1024

// New returns a runtime with calls that take that long.
func New(delay time.Duration) *Runtime {
	return &Runtime{
		delay: delay, sandboxes: map[string]*runtimeapi.PodSandboxStatus{}, containers: map[string]*container{}, pods: map[string]*pod{},
	}
}

// waitAndLock waits, and locks the runtime.
func (r *Runtime) waitAndLock(ctx context.Context) {
	r.wait(ctx)
	r.mu.Lock()
}

// wait waits for the duration of a call.
func (r *Runtime) wait(ctx context.Context) {
	timer := time.NewTimer(r.delay)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (r *Runtime) id() string { return fmt.Sprintf("%064x", r.next.Add(1)) }

// of returns a pod's ids. It is called with mu held.
func (r *Runtime) of(uid string) *pod {
	if r.pods[uid] == nil {
		r.pods[uid] = &pod{map[string]bool{}, map[string]bool{}}
	}
	return r.pods[uid]
}

// notify notifies listeners that a pod has changed. It is called with mu held.
func (r *Runtime) notify(s *runtimeapi.PodSandboxStatus) {
	r.events.Publish(func() *runtimeapi.ContainerEventResponse {
		return &runtimeapi.ContainerEventResponse{PodSandboxStatus: s}
	})
}

// Version returns a fixed version.
func (r *Runtime) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake", RuntimeVersion: "1"}, nil
}

// Status reports that the runtime is ready.
func (r *Runtime) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{}}, nil
}

// UpdateRuntimeConfig does nothing.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *runtimeapi.RuntimeConfig) error { return nil }

// GetContainerEvents reports changes until ctx ends.
func (r *Runtime) GetContainerEvents(
	ctx context.Context, events chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	sub, err := r.events.Subscribe(backlog)
	if err != nil {
		return err
	}
	defer sub.Close()
	established(nil)
	for {
		select {
		case event, ok := <-sub.Events():
			if !ok {
				return sub.Err()
			}
			select {
			case events <- event:
			case <-ctx.Done():
				return nil
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// RunPodSandbox creates a pod.
func (r *Runtime) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	id := r.id()
	r.sandboxes[id] = &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: config.Metadata, CreatedAt: time.Now().UnixNano(), Labels: config.Labels, Annotations: config.Annotations,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: fmt.Sprintf("10.0.%d.%d", len(r.sandboxes)/250, len(r.sandboxes)%250+1)},
	}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		r.sandboxes[id].Network = &runtimeapi.PodSandboxNetworkStatus{} // no runtime reports the host's address
	}
	r.of(config.Labels[uidLabel]).sandboxes[id] = true
	return id, nil
}

// StopPodSandbox stops a pod and its containers.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil
	}
	s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	for c := range r.of(s.Labels[uidLabel]).containers {
		r.exit(r.containers[c], 137)
	}
	return nil
}

// RemovePodSandbox removes a pod and its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	s := r.sandboxes[id]
	if s == nil {
		return nil
	}
	uid := s.Labels[uidLabel]
	for c := range r.of(uid).containers {
		delete(r.containers, c)
	}
	delete(r.sandboxes, id)
	delete(r.pods, uid)
	return nil
}

// PodSandboxStatus returns a pod's status.
func (r *Runtime) PodSandboxStatus(ctx context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	if r.sandboxes[id] == nil {
		return nil, status.Error(codes.NotFound, "no sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: proto.CloneOf(r.sandboxes[id])}, nil
}

// ListPodSandbox lists the sandboxes of one pod, or all.
func (r *Runtime) ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) (out []*runtimeapi.PodSandbox, err error) {
	r.waitAndLock(ctx)
	defer r.mu.Unlock()
	add := func(s *runtimeapi.PodSandboxStatus) {
		out = append(out, &runtimeapi.PodSandbox{Id: s.Id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels})
	}
	if uid := filter.GetLabelSelector()[uidLabel]; uid != "" {
		if p := r.pods[uid]; p != nil {
			for id := range p.sandboxes {
				add(r.sandboxes[id])
			}
		}
		return out, nil
	}
	for _, s := range r.sandboxes {
		add(s)
	}
	return out, nil
}
