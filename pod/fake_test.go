package pod

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/config"
)

// fakeCRI is a runtime with containers that follow their scripts. It uses the test's clock.
type fakeCRI struct {
	internalapi.RuntimeService
	internalapi.ImageManagerService

	mu         sync.Mutex
	calls      []string
	next       int
	sandboxes  map[string]*fakeSandbox
	containers map[string]*fakeContainer
	listeners  map[chan *runtimeapi.ContainerEventResponse]struct{}

	scripts map[string][]life // by container name, one for each start; the last one repeats
	images  map[string]*runtimeapi.Image
	pulls   map[string][]error // results of the next pulls; afterwards they succeed
	// hold makes a call wait: RunPodSandbox, Resize of a sandbox, or PullImage by the image's name. "CreateContainer
	// NAME" and "StartContainer NAME" wait too; if their contexts end, they return an error without an effect.
	hold map[string]chan struct{}
	late bool // these calls succeed when their contexts end
	// template makes RunPodSandbox wait, unless its context ends.
	template chan struct{}
	silent   bool // Version does not return before its context ends

	errors map[string][]error                                              // results of the next calls, by method name
	execs  map[string]fakeExec                                             // by the command's first word
	exec   func(container string, cmd []string) (stdout []byte, err error) // instead of execs
}

// fakeExec is the course of a command in a container.
type fakeExec struct {
	lasts time.Duration
	err   error
}

// life is the course of one instance of a container.
type life struct {
	lasts    time.Duration // 0: until it is stopped
	code     int32
	reason   string
	fails    error         // of StartContainer, with code as the exit code
	deaf     bool          // it ignores TERM
	term     time.Duration // the time from TERM to its end
	termCode int32         // 0 means 143, -1 means 0
}

type fakeSandbox struct {
	config *runtimeapi.PodSandboxConfig
	status *runtimeapi.PodSandboxStatus
}

type fakeContainer struct {
	sandbox string
	config  *runtimeapi.ContainerConfig
	status  *runtimeapi.ContainerStatus
	life    life
	ended   chan struct{}
}

func newFake() *fakeCRI {
	return &fakeCRI{
		sandboxes: map[string]*fakeSandbox{}, containers: map[string]*fakeContainer{},
		listeners: map[chan *runtimeapi.ContainerEventResponse]struct{}{},
		scripts:   map[string][]life{}, pulls: map[string][]error{}, hold: map[string]chan struct{}{}, errors: map[string][]error{},
		execs:  map[string]fakeExec{},
		images: map[string]*runtimeapi.Image{"here:1": {Id: "sha256:here", Uid: &runtimeapi.Int64Value{}}},
	}
}

// call records a call and returns its configured error.
func (f *fakeCRI) call(name, subject string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, name+" "+subject)
	return pop(f.errors, name)
}

func pop(results map[string][]error, key string) error {
	if len(results[key]) == 0 {
		return nil
	}
	err := results[key][0]
	results[key] = results[key][1:]
	return err
}

// called returns the recorded calls of these methods.
func (f *fakeCRI) called(names ...string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, call := range f.calls {
		var name, subject string
		fmt.Sscan(call, &name, &subject)
		if slices.Contains(names, name) {
			out = append(out, call)
		}
	}
	return out
}

func (f *fakeCRI) id(kind string) string {
	f.next++
	return fmt.Sprintf("%s%d", kind, f.next)
}

func (f *fakeCRI) notify(uid string) {
	for events := range f.listeners {
		status := &runtimeapi.PodSandboxStatus{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}}
		events <- &runtimeapi.ContainerEventResponse{PodSandboxStatus: status}
	}
}

func (f *fakeCRI) Version(ctx context.Context, _ string) (*runtimeapi.VersionResponse, error) {
	if f.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &runtimeapi.VersionResponse{RuntimeName: "bulkhead"}, nil
}

func (f *fakeCRI) GetContainerEvents(ctx context.Context, events chan *runtimeapi.ContainerEventResponse,
	established func(runtimeapi.RuntimeService_GetContainerEventsClient)) error {
	if err := f.call("GetContainerEvents", ""); err != nil {
		return err
	}
	queue := make(chan *runtimeapi.ContainerEventResponse, 1000)
	f.mu.Lock()
	f.listeners[queue] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.listeners, queue)
		f.mu.Unlock()
	}()
	established(nil)
	for {
		select {
		case event := <-queue:
			if event == nil {
				return status.Error(codes.Unavailable, "cut off")
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

func (f *fakeCRI) RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	if err := f.call("RunPodSandbox", fmt.Sprint(config.Metadata.Attempt)); err != nil {
		return "", err
	}
	f.wait("RunPodSandbox")
	f.mu.Lock()
	defer f.mu.Unlock()
	if gate := f.template; gate != nil {
		f.mu.Unlock()
		select {
		case <-gate:
		case <-ctx.Done():
		}
		f.mu.Lock()
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
	}
	id := f.id("s")
	f.sandboxes[id] = &fakeSandbox{config: config, status: &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: config.Metadata, CreatedAt: time.Now().UnixNano(), Labels: config.Labels, Annotations: config.Annotations,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.2.15"},
	}}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		f.sandboxes[id].status.Network = &runtimeapi.PodSandboxNetworkStatus{} // like every runtime
	}
	return id, nil
}

func (f *fakeCRI) wait(what string) {
	f.mu.Lock()
	gate := f.hold[what]
	f.mu.Unlock()
	if gate != nil {
		<-gate
	}
}

// held is wait for a call that its context can end.
func (f *fakeCRI) held(ctx context.Context, what string) error {
	f.mu.Lock()
	gate := f.hold[what]
	f.mu.Unlock()
	if gate == nil {
		return nil
	}
	select {
	case <-gate:
		return nil
	case <-ctx.Done():
		if f.late {
			return nil
		}
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (f *fakeCRI) StopPodSandbox(_ context.Context, id string) error {
	if err := f.call("StopPodSandbox", id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sandboxes[id] == nil {
		return status.Error(codes.NotFound, "no sandbox")
	}
	f.sandboxes[id].status.State, f.sandboxes[id].status.Network = runtimeapi.PodSandboxState_SANDBOX_NOTREADY, nil
	for _, c := range f.containers {
		if c.sandbox == id {
			f.end(c, 137, "VMKilled")
		}
	}
	return nil
}

// die ends a sandbox's VM; with lost, its containers do not appear as ended.
func (f *fakeCRI) die(id string, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sandboxes[id].status.State, f.sandboxes[id].status.Network = runtimeapi.PodSandboxState_SANDBOX_NOTREADY, nil
	for _, c := range f.containers {
		if c.sandbox == id && !lost {
			f.end(c, 137, "VMKilled")
		}
	}
	f.notify(f.sandboxes[id].status.Metadata.Uid)
}

func (f *fakeCRI) RemovePodSandbox(_ context.Context, id string) error {
	if err := f.call("RemovePodSandbox", id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sandboxes, id)
	return nil
}

func (f *fakeCRI) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sandbox := f.sandboxes[id]
	if sandbox == nil {
		return nil, status.Error(codes.NotFound, "no sandbox")
	}
	return &runtimeapi.PodSandboxStatusResponse{Status: proto.CloneOf(sandbox.status)}, nil
}

func matches(labels, selector map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return true
}

func (f *fakeCRI) ListPodSandbox(_ context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := pop(f.errors, "ListPodSandbox"); err != nil {
		return nil, err
	}
	var out []*runtimeapi.PodSandbox
	for id, s := range f.sandboxes {
		if matches(s.config.Labels, filter.GetLabelSelector()) {
			out = append(out, &runtimeapi.PodSandbox{Id: id, Metadata: s.config.Metadata, State: s.status.State, CreatedAt: s.status.CreatedAt,
				Labels: s.config.Labels})
		}
	}
	return out, nil
}

func (f *fakeCRI) CreateContainer(ctx context.Context, sandbox string, config *runtimeapi.ContainerConfig,
	_ *runtimeapi.PodSandboxConfig) (string, error) {
	if err := f.call("CreateContainer", fmt.Sprintf("%s/%d", config.Metadata.Name, config.Metadata.Attempt)); err != nil {
		return "", err
	}
	if err := f.held(ctx, "CreateContainer "+config.Metadata.Name); err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	id := f.id("c")
	script := f.scripts[config.Metadata.Name]
	l := life{}
	if len(script) > 0 {
		l = script[0]
		if len(script) > 1 {
			f.scripts[config.Metadata.Name] = script[1:]
		}
	}
	f.containers[id] = &fakeContainer{sandbox: sandbox, config: config, life: l, ended: make(chan struct{}),
		status: &runtimeapi.ContainerStatus{
			Id: id, Metadata: config.Metadata, State: runtimeapi.ContainerState_CONTAINER_CREATED, CreatedAt: time.Now().UnixNano(),
			Image: config.Image, ImageRef: config.Image.Image, Labels: config.Labels, Annotations: config.Annotations,
			Resources: &runtimeapi.ContainerResources{Linux: config.Linux.GetResources()},
		}}
	return id, nil
}

func (f *fakeCRI) StartContainer(ctx context.Context, id string) error {
	f.mu.Lock()
	c := f.containers[id]
	f.mu.Unlock()
	if err := f.call("StartContainer", c.config.Metadata.Name); err != nil {
		return err
	}
	if err := f.held(ctx, "StartContainer "+c.config.Metadata.Name); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	c.status.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	if c.life.fails != nil {
		c.status.Message = runtimev1.StartMessage(c.life.fails.Error(), int(c.life.code))
		f.end(c, runtimev1.CodeStart, runtimev1.ReasonStart)
		return c.life.fails
	}
	c.status.StartedAt = time.Now().UnixNano()
	f.notify(c.config.Labels[config.LabelUID])
	if c.life.lasts > 0 {
		f.later(c, c.life.lasts, c.life.code, c.life.reason)
	}
	return nil
}

// later ends c after a delay, unless it ends earlier.
func (f *fakeCRI) later(c *fakeContainer, after time.Duration, code int32, reason string) {
	go func() {
		select {
		case <-time.After(after):
			f.mu.Lock()
			defer f.mu.Unlock()
			f.end(c, code, reason)
		case <-c.ended:
		}
	}()
}

// end ends c. The caller holds mu.
func (f *fakeCRI) end(c *fakeContainer, code int32, reason string) {
	if c.status.State != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	next := proto.CloneOf(c.status)
	next.State, next.ExitCode, next.Reason, next.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, reason, time.Now().UnixNano()
	c.status = next
	close(c.ended)
	f.notify(c.config.Labels[config.LabelUID])
}

func (f *fakeCRI) StopContainer(ctx context.Context, id string, timeout int64) error {
	f.mu.Lock()
	c := f.containers[id]
	f.mu.Unlock()
	if c == nil {
		return status.Error(codes.NotFound, "no container")
	}
	if err := f.call("StopContainer", fmt.Sprintf("%s/%d", c.config.Metadata.Name, timeout)); err != nil {
		return err
	}
	if !c.life.deaf && timeout > 0 {
		code := c.life.termCode
		if code == 0 {
			code = 143
		}
		code = max(code, 0)
		f.later(c, max(c.life.term, time.Nanosecond), code, "")
	}
	select {
	case <-c.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(timeout) * time.Second):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.end(c, 137, "")
	return nil
}

// ExecSync returns when the command, the container or ctx has ended.
func (f *fakeCRI) ExecSync(ctx context.Context, id string, cmd []string, _ time.Duration) ([]byte, []byte, error) {
	f.mu.Lock()
	c := f.containers[id]
	f.mu.Unlock()
	if err := f.call("ExecSync", c.config.Metadata.Name+" "+cmd[0]); err != nil {
		return nil, nil, err
	}
	if f.exec != nil {
		stdout, err := f.exec(c.config.Metadata.Name, cmd)
		return stdout, nil, err
	}
	how := f.execs[cmd[0]]
	select {
	case <-time.After(how.lasts):
		return nil, nil, how.err
	case <-c.ended:
		return nil, nil, status.Error(codes.FailedPrecondition, "the container has ended")
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
}

func (f *fakeCRI) RemoveContainer(_ context.Context, id string) error {
	if err := f.call("RemoveContainer", id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.containers, id)
	return nil
}

func (f *fakeCRI) ListContainers(_ context.Context, filter *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*runtimeapi.Container
	for _, id := range slices.Sorted(maps.Keys(f.containers)) {
		c := f.containers[id]
		if matches(c.config.Labels, filter.GetLabelSelector()) {
			out = append(out, &runtimeapi.Container{Id: id, PodSandboxId: c.sandbox, Metadata: c.config.Metadata, State: c.status.State,
				CreatedAt: c.status.CreatedAt, Labels: c.config.Labels, Annotations: c.config.Annotations})
		}
	}
	return out, nil
}

func (f *fakeCRI) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.containers[id]
	if c == nil {
		return nil, status.Error(codes.NotFound, "no container")
	}
	return &runtimeapi.ContainerStatusResponse{Status: proto.CloneOf(c.status)}, nil
}

func (f *fakeCRI) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	if err := f.call("ImageStatus", spec.Image); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, image := range f.images {
		if name == spec.Image || image.Id == spec.Image {
			return &runtimeapi.ImageStatusResponse{Image: image}, nil
		}
	}
	return &runtimeapi.ImageStatusResponse{}, nil
}

func (f *fakeCRI) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig,
	_ *runtimeapi.PodSandboxConfig) (string, error) {
	f.mu.Lock()
	call := "PullImage " + spec.Image
	if auth != nil {
		call += " " + auth.Username
	}
	f.calls = append(f.calls, call)
	gate := f.hold[spec.Image]
	f.mu.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := pop(f.pulls, spec.Image); err != nil {
		return "", err
	}
	image := &runtimeapi.Image{Id: "sha256:" + spec.Image, Uid: &runtimeapi.Int64Value{}}
	f.images[spec.Image] = image
	return image.Id, nil
}

// Close is in both interfaces.
func (f *fakeCRI) Close(context.Context) error { return nil }

func (f *fakeCRI) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{}, nil
}
