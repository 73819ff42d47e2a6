package manager

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
)

// fakeCRI is a runtime for several managers. Its containers end immediately with the code in their command ("exit",
// "3"), or run until they are stopped. Each writes a line with its name and attempt to its log.
type fakeCRI struct {
	internalapi.RuntimeService
	internalapi.ImageManagerService

	mu         sync.Mutex
	next       int
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*fakeContainer
	listeners  map[chan *runtimeapi.ContainerEventResponse]struct{}
	fails      map[string]error // of every call of a method
	dying      time.Duration    // how long a container takes to end
	graces     []int64          // the graces of stop requests
	term       int32            // the exit code after TERM
}

type fakeContainer struct {
	sandbox string
	config  *runtimeapi.ContainerConfig
	status  *runtimeapi.ContainerStatus
}

func newFake() *fakeCRI {
	return &fakeCRI{
		sandboxes: map[string]*runtimeapi.PodSandboxStatus{}, containers: map[string]*fakeContainer{},
		listeners: map[chan *runtimeapi.ContainerEventResponse]struct{}{}, fails: map[string]error{}, term: 143,
	}
}

func (f *fakeCRI) fail(method string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fails[method] = err
}

// left returns the number of remaining sandboxes and containers.
func (f *fakeCRI) left() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.sandboxes) + len(f.containers)
}

// running returns the number of running containers.
func (f *fakeCRI) running() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		if c.status.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			n++
		}
	}
	return n
}

// notify notifies the subscribers. The caller holds mu.
func (f *fakeCRI) notify() {
	for listener := range f.listeners {
		select {
		case listener <- &runtimeapi.ContainerEventResponse{}:
		default:
		}
	}
}

func (f *fakeCRI) Close(context.Context) error { return nil }

func (f *fakeCRI) Version(context.Context, string) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{RuntimeName: "fake"}, nil
}

func (f *fakeCRI) ImageStatus(context.Context, *runtimeapi.ImageSpec, bool) (*runtimeapi.ImageStatusResponse, error) {
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "here"}}, nil
}

func (f *fakeCRI) GetContainerEvents(
	ctx context.Context, events chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	f.mu.Lock()
	f.listeners[events] = struct{}{}
	f.mu.Unlock()
	established(nil)
	<-ctx.Done()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.listeners, events)
	return nil
}

func (f *fakeCRI) RunPodSandbox(_ context.Context, config *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["RunPodSandbox"]; err != nil {
		return "", err
	}
	f.next++
	id := "sandbox" + strconv.Itoa(f.next)
	f.sandboxes[id] = &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: config.Metadata, CreatedAt: time.Now().UnixNano(), Labels: config.Labels, Annotations: config.Annotations,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.2.15"},
	}
	return id, nil
}

func (f *fakeCRI) StopPodSandbox(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["StopPodSandbox"]; err != nil {
		return err
	}
	if s := f.sandboxes[id]; s != nil {
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	for _, c := range f.containers {
		if c.sandbox == id {
			f.end(c, 137)
		}
	}
	return nil
}

func (f *fakeCRI) RemovePodSandbox(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["RemovePodSandbox"]; err != nil {
		return err
	}
	delete(f.sandboxes, id)
	for id, c := range f.containers {
		if f.sandboxes[c.sandbox] == nil {
			delete(f.containers, id)
		}
	}
	return nil
}

func (f *fakeCRI) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sandboxes[id] == nil {
		return nil, status.Error(codes.NotFound, "no sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: proto.CloneOf(f.sandboxes[id])}, nil
}

func matches(labels, selector map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (f *fakeCRI) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) (out []*runtimeapi.PodSandbox, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, s := range f.sandboxes {
		if matches(s.Labels, filter.GetLabelSelector()) {
			out = append(out, &runtimeapi.PodSandbox{Id: id, Metadata: s.Metadata, State: s.State, CreatedAt: s.CreatedAt, Labels: s.Labels})
		}
	}
	return out, nil
}

func (f *fakeCRI) CreateContainer(
	_ context.Context, sandbox string, config *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig,
) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["CreateContainer"]; err != nil {
		return "", err
	}
	f.next++
	id := "container" + strconv.Itoa(f.next)
	f.containers[id] = &fakeContainer{sandbox: sandbox, config: config, status: &runtimeapi.ContainerStatus{
		Id: id, Metadata: config.Metadata, CreatedAt: time.Now().UnixNano(), Image: config.Image, ImageRef: "here",
		Labels: config.Labels, Annotations: config.Annotations, LogPath: filepath.Join(pod.GetLogDirectory(), config.LogPath),
		Resources: &runtimeapi.ContainerResources{Linux: config.Linux.GetResources()},
	}}
	return id, nil
}

func (f *fakeCRI) StartContainer(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	c.status.State, c.status.StartedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
	if err := os.MkdirAll(filepath.Dir(c.status.LogPath), 0o700); err != nil {
		return err
	}
	line := fmt.Sprintf("%s stdout F %s %d\n", time.Now().UTC().Format(time.RFC3339Nano), c.config.Metadata.Name, c.config.Metadata.Attempt)
	if err := os.WriteFile(c.status.LogPath, []byte(line), 0o600); err != nil {
		return err
	}
	if cmd := c.config.Command; len(cmd) == 2 && cmd[0] == "exit" {
		code, err := strconv.Atoi(cmd[1])
		if err != nil {
			return err
		}
		f.end(c, int32(code))
	}
	f.notify()
	return nil
}

// end ends c. The caller holds mu.
func (f *fakeCRI) end(c *fakeContainer, code int32) {
	if c.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.status.State, c.status.ExitCode, c.status.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, time.Now().UnixNano()
	f.notify()
}

func (f *fakeCRI) StopContainer(ctx context.Context, id string, timeout int64) error {
	f.mu.Lock()
	f.graces = append(f.graces, timeout)
	f.mu.Unlock()
	select {
	case <-time.After(min(f.dying, time.Duration(timeout)*time.Second)):
	case <-ctx.Done():
		return ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	if c == nil {
		return status.Error(codes.NotFound, "no container")
	}
	code := int32(137)
	if timeout > 0 {
		code = f.term
	}
	f.end(c, code)
	return nil
}

func (f *fakeCRI) RemoveContainer(_ context.Context, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, id)
	return nil
}

func (f *fakeCRI) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) (out []*runtimeapi.Container, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, c := range f.containers {
		if matches(c.config.Labels, filter.GetLabelSelector()) {
			out = append(out, &runtimeapi.Container{
				Id: id, PodSandboxId: c.sandbox, Metadata: c.config.Metadata, State: c.status.State,
				CreatedAt: c.status.CreatedAt, Labels: c.config.Labels, Annotations: c.config.Annotations,
			})
		}
	}
	return out, nil
}

func (f *fakeCRI) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.containers[id] == nil {
		return nil, status.Error(codes.NotFound, "no container")
	}
	return &runtimeapi.ContainerStatusResponse{Status: proto.CloneOf(f.containers[id].status)}, nil
}

func (f *fakeCRI) UpdatePodSandboxResources(
	context.Context, *runtimeapi.UpdatePodSandboxResourcesRequest,
) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}

func (f *fakeCRI) UpdateContainerResources(_ context.Context, id string, r *runtimeapi.ContainerResources) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.fails["UpdateContainerResources"]; err != nil {
		return err
	}
	f.containers[id].status.Resources = r
	return nil
}

// RunPodSandboxWith and the next two record options beyond the CRI.
func (f *fakeCRI) RunPodSandboxWith(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string, _ runtimev1.PodOptions,
) (string, error) {
	return f.RunPodSandbox(ctx, config, handler)
}

func (f *fakeCRI) CreateContainerWith(
	ctx context.Context, pod string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig, _ runtimev1.ContainerOptions,
) (string, error) {
	return f.CreateContainer(ctx, pod, config, sandbox)
}

func (f *fakeCRI) ExecSyncClipped(
	ctx context.Context, id string, cmd []string, timeout time.Duration, _ int,
) (stdout, stderr []byte, err error) {
	return f.ExecSync(ctx, id, cmd, timeout)
}
