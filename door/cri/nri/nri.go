// Package nri runs a node's NRI plugins (containerd/nri). They see pods and containers, and can adjust settings that a
// VM supports. Adjustments that need the host are refused with an error that names them.
package nri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	service "github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/internal/trusted"
)

// Options locates the plugins. Empty fields mean the standard paths.
type Options struct {
	Socket, Dir, Conf string
	Logger            *slog.Logger
}

// Runtime is the runtime that plugins see. A door's is a *service.Service.
type Runtime interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	PodSandboxStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.PodSandboxStatusResponse, error)
	ListPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	CreateContainer(
		ctx context.Context, pod string, c *runtimeapi.ContainerConfig, p *runtimeapi.PodSandboxConfig,
	) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, timeout int64) error
	ListContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error)
	ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error)
	UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.ContainerResources) error
	GetContainerEvents(
		ctx context.Context, ch chan *runtimeapi.ContainerEventResponse,
		established func(runtimeapi.RuntimeService_GetContainerEventsClient),
	) error
}

var _ Runtime = (*service.Service)(nil)

// Plugins are a node's plugins. The runtime calls Adjust. The other methods wrap the runtime's methods with the same
// names. Each request to a plugin has a deadline of two seconds. A plugin that misses it is dropped, and the request
// continues without it unless the plugin has registered as required.
type Plugins struct {
	o   Options
	a   *adaptation.Adaptation
	run Runtime

	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu         sync.Mutex
	pods       map[string]*api.PodSandbox
	containers map[string]*api.Container
	created    map[string]bool // containers that the runtime has or had
	stopped    map[string]bool // pods and containers with a reported end
}

// updateTimeout bounds updates that plugins request themselves.
const updateTimeout = time.Minute

// New returns Plugins. No plugin is called before Start.
func New(o Options) (*Plugins, error) {
	useLogger(o.Logger)
	for _, dir := range []string{cmp.Or(o.Dir, adaptation.DefaultPluginPath), cmp.Or(o.Conf, adaptation.DefaultPluginConfigPath)} {
		if err := checkDir(dir); err != nil {
			return nil, fmt.Errorf("nri: %w", err)
		}
	}
	p := &Plugins{
		o: o, pods: map[string]*api.PodSandbox{}, containers: map[string]*api.Container{},
		created: map[string]bool{}, stopped: map[string]bool{},
	}
	var options []adaptation.Option
	for path, option := range map[string]func(string) adaptation.Option{
		o.Socket: adaptation.WithSocketPath, o.Dir: adaptation.WithPluginPath, o.Conf: adaptation.WithPluginConfigPath,
	} {
		if path != "" {
			options = append(options, option(path))
		}
	}
	version, err := (&service.Service{}).Version(context.Background(), "")
	if err == nil {
		p.a, err = adaptation.New(service.RuntimeName, version.GetRuntimeVersion(), p.synchronize, p.unsolicited, options...)
	}
	if err != nil {
		return nil, fmt.Errorf("nri: %w", err)
	}
	return p, nil
}

// checkDir refuses a directory of programs or configuration that another user may change. The directory may be missing.
func checkDir(dir string) error {
	d, err := trusted.Dir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	entries, err := d.ReadDir(0)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		if err := trusted.Files(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Start starts the installed plugins and listens for others. It passes the existing pods and containers to them. Close
// stops it.
func (p *Plugins) Start(ctx context.Context, run Runtime) error {
	p.run = run
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := p.read(ctx); err != nil {
		return fmt.Errorf("nri: %w", err)
	}
	subscribed := make(chan struct{})
	p.wg.Go(func() { p.watchEvents(ctx, sync.OnceFunc(func() { close(subscribed) })) })
	<-subscribed
	if err := p.a.Start(); err != nil {
		p.Close()
		return fmt.Errorf("nri: %w", err)
	}
	return nil
}

// Close stops the installed plugins and disconnects the others.
func (p *Plugins) Close() {
	p.cancel()
	p.a.Stop()
	p.wg.Wait()
}

// synchronize sends all pods and containers to a plugin.
func (p *Plugins) synchronize(ctx context.Context, send adaptation.SyncCB) error {
	p.mu.Lock()
	var pods []*api.PodSandbox
	for _, pod := range p.pods {
		pods = append(pods, pod)
	}
	var containers []*api.Container
	for _, c := range p.containers {
		containers = append(containers, c)
	}
	p.mu.Unlock()
	updates, err := send(ctx, pods, containers)
	if err != nil {
		return err
	}
	_, err = p.unsolicited(ctx, updates)
	return err
}

// unsolicited makes the updates that plugins request, and returns the failed ones.
func (p *Plugins) unsolicited(ctx context.Context, updates []*api.ContainerUpdate) (failed []*api.ContainerUpdate, err error) {
	ctx, cancel := context.WithTimeout(ctx, updateTimeout)
	defer cancel()
	for _, u := range updates {
		err := p.update(ctx, u)
		if err == nil {
			continue
		}
		p.o.Logger.Warn("cannot update a container for a plugin", "container", u.GetContainerId(), "error", err)
		if !u.GetIgnoreFailure() {
			failed = append(failed, u)
		}
	}
	return failed, nil
}

func (p *Plugins) update(ctx context.Context, u *api.ContainerUpdate) error {
	r, err := resources(u.GetLinux().GetResources(), nil)
	if err != nil {
		return err
	}
	return p.run.UpdateContainerResources(ctx, u.GetContainerId(), &runtimeapi.ContainerResources{Linux: r})
}

// evict stops the containers that plugins evict.
func (p *Plugins) evict(ctx context.Context, all []*api.ContainerEviction) {
	for _, e := range all {
		p.o.Logger.Info("a plugin evicts a container", "container", e.GetContainerId(), "reason", e.GetReason())
		p.wg.Go(func() {
			if err := p.run.StopContainer(context.WithoutCancel(ctx), e.GetContainerId(), 10); err != nil {
				p.o.Logger.Warn("cannot stop a container that a plugin evicts", "container", e.GetContainerId(), "error", err)
			}
		})
	}
}
