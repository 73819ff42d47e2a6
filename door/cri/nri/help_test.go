package nri

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"github.com/opencontainers/runtime-spec/specs-go"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	service "github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/oci"
)

// fake is a runtime in memory.
type fake struct {
	adjust func(context.Context, service.Making, *specs.Spec) (func(), error)
	fail   error // of CreateContainer, after the adjustment
	events chan *runtimeapi.ContainerEventResponse

	mu         sync.Mutex
	pods       map[string]bool
	containers map[string]string // container IDs to pod IDs
	exited     map[string]bool
	specs      map[string]*specs.Spec
	updates    map[string]*runtimeapi.LinuxContainerResources
}

func (f *fake) RunPodSandbox(_ context.Context, c *runtimeapi.PodSandboxConfig, _ string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[c.GetMetadata().GetName()] = true
	return c.GetMetadata().GetName(), nil
}

// StopPodSandbox sends the stop events of the containers and the pod.
func (f *fake) StopPodSandbox(_ context.Context, id string) error {
	f.send(id, id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return nil
}

func (f *fake) RemovePodSandbox(_ context.Context, id string) error {
	f.mu.Lock()
	delete(f.pods, id)
	f.mu.Unlock()
	f.send(id, id, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	return nil
}

func (f *fake) send(pod, id string, kind runtimeapi.ContainerEventType) {
	f.events <- &runtimeapi.ContainerEventResponse{
		ContainerId: id, ContainerEventType: kind, PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: pod},
		ContainersStatuses: []*runtimeapi.ContainerStatus{{Id: id, State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 3}},
	}
}

func (f *fake) PodSandboxStatus(_ context.Context, id string, _ bool) (*runtimeapi.PodSandboxStatusResponse, error) {
	return &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Name: id, Namespace: "default"},
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.1.1.1", AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}}},
	}}, nil
}

func (f *fake) ListPodSandbox(context.Context, *runtimeapi.PodSandboxFilter) (out []*runtimeapi.PodSandbox, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id := range f.pods {
		out = append(out, &runtimeapi.PodSandbox{Id: id})
	}
	return out, nil
}

func (f *fake) CreateContainer(
	ctx context.Context, pod string, c *runtimeapi.ContainerConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	id := pod + "-" + c.GetMetadata().GetName()
	spec, err := oci.New(id)
	if err != nil {
		return "", err
	}
	spec.Process.Args, spec.Process.Env = []string{"sleep"}, append(spec.Process.Env, "OLD=1")
	undo, err := f.adjust(ctx, service.Making{ID: id, PodID: pod, Config: c}, spec)
	if err != nil {
		return "", err
	}
	if f.fail != nil {
		undo()
		return "", f.fail
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.containers[id], f.specs[id] = pod, spec
	return id, nil
}

func (f *fake) StartContainer(context.Context, string) error { return nil }

func (f *fake) StopContainer(_ context.Context, id string, _ int64) error {
	f.send(f.containers[id], id, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
	return nil
}

func (f *fake) ListContainers(context.Context, *runtimeapi.ContainerFilter) (out []*runtimeapi.Container, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, pod := range f.containers {
		out = append(out, &runtimeapi.Container{
			Id: id, PodSandboxId: pod, Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, State: f.state(id),
		})
	}
	return out, nil
}

func (f *fake) state(id string) runtimeapi.ContainerState {
	if f.exited[id] {
		return runtimeapi.ContainerState_CONTAINER_EXITED
	}
	return runtimeapi.ContainerState_CONTAINER_RUNNING
}

func (f *fake) ContainerStatus(_ context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.containers[id] == "" {
		return nil, errors.New("no such container")
	}
	st := &runtimeapi.ContainerStatus{Id: id, State: f.state(id)}
	if f.exited[id] {
		st.ExitCode = 4
	}
	return &runtimeapi.ContainerStatusResponse{Status: st}, nil
}

func (f *fake) UpdateContainerResources(_ context.Context, id string, r *runtimeapi.ContainerResources) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.containers[id] == "" {
		return errors.New("no such container")
	}
	f.updates[id] = r.GetLinux()
	return nil
}

func (f *fake) GetContainerEvents(
	ctx context.Context, ch chan *runtimeapi.ContainerEventResponse, established func(runtimeapi.RuntimeService_GetContainerEventsClient),
) error {
	established(nil)
	for {
		select {
		case e := <-f.events:
			if e == nil {
				return errors.New("too slow")
			}
			ch <- e
		case <-ctx.Done():
			return nil
		}
	}
}

// world is Plugins over a fake runtime.
type world struct {
	*fake
	*Plugins
	socket string
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{socket: filepath.Join(dir, "nri.sock"), fake: &fake{
		events: make(chan *runtimeapi.ContainerEventResponse), pods: map[string]bool{}, containers: map[string]string{},
		exited: map[string]bool{}, specs: map[string]*specs.Spec{}, updates: map[string]*runtimeapi.LinuxContainerResources{},
	}}
	var err error
	w.Plugins, err = New(Options{
		Socket: w.socket, Dir: filepath.Join(dir, "plugins"), Conf: filepath.Join(dir, "conf"),
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	w.adjust = w.Adjust
	return w
}

func (w *world) start(t *testing.T) {
	t.Helper()
	if err := w.Start(t.Context(), w.fake); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
}

// plugin is a real NRI plugin that records its calls.
type plugin struct {
	mu     sync.Mutex
	calls  []string
	create func(*api.Container) (*api.ContainerAdjustment, []*api.ContainerUpdate, error)
	update func(*api.Container, *api.LinuxResources) ([]*api.ContainerUpdate, error)
	run    error
	synced chan struct{}
	stub   stub.Stub
}

// join registers a plugin, and waits until it is synchronised.
func (w *world) join(t *testing.T, name string, p *plugin, options ...stub.Option) {
	t.Helper()
	p.synced = make(chan struct{})
	var err error
	p.stub, err = stub.New(p, append(options, stub.WithPluginName(name), stub.WithPluginIdx("10"), stub.WithSocketPath(w.socket),
		stub.WithOnClose(func() {}))...)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.stub.Start(testdeadline.Context(t, 10*time.Second)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.stub.Stop)
	<-p.synced
	w.a.BlockPluginSync().Unblock() // and until that has taken effect
}

func (p *plugin) record(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, fmt.Sprintf(format, args...))
}

// has waits until the plugin's calls are these, in this order.
func (p *plugin) has(t *testing.T, want ...string) {
	t.Helper()
	p.wait(t, want, func([]string) {})
}

func (p *plugin) wait(t *testing.T, want []string, order func([]string)) {
	t.Helper()
	ctx := testdeadline.Context(t, 10*time.Second)
	for {
		p.mu.Lock()
		got := slices.Clone(p.calls)
		p.mu.Unlock()
		order(got)
		if slices.Equal(got, want) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("the plugin's calls are %s, want %s", strings.Join(got, ", "), strings.Join(want, ", "))
		}
		time.Sleep(time.Millisecond)
	}
}

// hasAll is like has, in any order.
func (p *plugin) hasAll(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	p.wait(t, want, func(calls []string) { slices.Sort(calls) })
}

func (p *plugin) Synchronize(_ context.Context, pods []*api.PodSandbox, all []*api.Container) ([]*api.ContainerUpdate, error) {
	defer close(p.synced)
	p.record("sync %d %d", len(pods), len(all))
	return nil, nil
}

func (p *plugin) RunPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.record("run %s %s", pod.GetName(), strings.Join(pod.GetIps(), "+"))
	return p.run
}

func (p *plugin) StopPodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.record("stop %s", pod.GetName())
	return nil
}

func (p *plugin) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	p.record("remove %s", pod.GetName())
	return nil
}

func (p *plugin) CreateContainer(
	_ context.Context, _ *api.PodSandbox, c *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	p.record("create %s", c.GetName())
	if p.create == nil {
		return nil, nil, nil
	}
	return p.create(c)
}

func (p *plugin) PostCreateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.record("created %s", c.GetName())
	return nil
}

func (p *plugin) StartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.record("start %s", c.GetName())
	return nil
}

func (p *plugin) PostStartContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.record("started %s %v", c.GetName(), c.GetState() == api.ContainerState_CONTAINER_RUNNING)
	return nil
}

func (p *plugin) UpdateContainer(
	_ context.Context, _ *api.PodSandbox, c *api.Container, r *api.LinuxResources,
) ([]*api.ContainerUpdate, error) {
	p.record("update %s", c.GetName())
	if p.update == nil {
		return nil, nil
	}
	return p.update(c, r)
}

func (p *plugin) PostUpdateContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.record("updated %s", c.GetName())
	return nil
}

func (p *plugin) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	p.record("end %s %d", c.GetName(), c.GetExitCode())
	return nil, nil
}

func (p *plugin) RemoveContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) error {
	p.record("delete %s", c.GetName())
	return nil
}
