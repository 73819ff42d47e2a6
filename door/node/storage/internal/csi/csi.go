// Package csi connects the CSI drivers of a host with the pods of its node. Drivers register as with a kubelet, the API
// server learns about them, and their volumes are mounted for pods. The packages below do the work; this one connects
// them.
package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/kubernetes"

	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/claims"
	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/attach"
	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/driver"
	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/mounts"
	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/nodeinfo"
	"github.com/bulkhead-project/bulkhead/door/node/storage/internal/csi/plugins"
	"github.com/bulkhead-project/bulkhead/internal/broadcast"
)

// Annotation marks a Node with volumes that the cluster's controllers attach.
const Annotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// Options configure a Plugin. All but Changed and Logger are required.
type Options struct {
	// Root is the root directory of a kubelet, where drivers expect it. It is an absolute path.
	Root string
	// Dir is the directory with the records of mounted volumes.
	Dir    string
	Client kubernetes.Interface
	// Name is the name of the node. Node returns the latest Node of the API server, or nil.
	Name string
	Node func() *corev1.Node
	// InUse reports whether the API server has confirmed that the node uses a volume.
	InUse func(corev1.UniqueVolumeName) bool
	// Publish publishes the node's status now. It must not block.
	Publish func()
	// Changed is called when a driver has been registered. It must not block.
	Changed func()
	Logger  *slog.Logger
}

var _ claims.Mounter = (*Plugin)(nil)

// Plugin manages the CSI drivers of a host. It is safe for concurrent use.
type Plugin struct {
	*mounts.Mounter
	o         Options
	publisher *nodeinfo.Publisher
	watcher   *plugins.Watcher
	changed   broadcast.Broadcast // on changes of the Node

	mu      sync.Mutex
	drivers map[string]*registered
	older   map[string][]*registered // drivers that a driver of a higher version has replaced
	node    types.UID
}

// registered is a registered driver.
type registered struct {
	mounts.Driver
	client  *driver.Client
	version *version.Version
	again   chan struct{} // closed when the name that it has lost is free
}

// New returns a Plugin that continues with the records of an earlier one. The caller calls Run once, and Close.
func New(o Options) (*Plugin, error) {
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Changed == nil {
		o.Changed = func() {}
	}
	p := &Plugin{o: o, drivers: map[string]*registered{}, older: map[string][]*registered{}}
	p.publisher = nodeinfo.New(o.Client, o.Name, o.Logger)
	waiter := attach.New(attach.Options{Client: o.Client, Name: o.Name, Node: o.Node, InUse: o.InUse, Changed: p.changed.Next})
	var err error
	p.Mounter, err = mounts.Open(mounts.Options{
		Root: o.Root, Dir: o.Dir, Client: o.Client, Node: o.Name, Driver: p.driver, Changed: o.Publish, Logger: o.Logger,
		Attached: func(ctx context.Context, driver, handle string) (map[string]string, error) {
			return waiter.Wait(ctx, mounts.UniqueName(driver, handle), driver, handle)
		},
	})
	if err != nil {
		return nil, err
	}
	p.watcher = plugins.New(plugins.Options{
		Dir: filepath.Join(o.Root, "plugins_registry"), Root: o.Root, Register: p.register, Logger: o.Logger,
	})
	return p, nil
}

// Run registers drivers until ctx ends. Volumes stay mounted. The error reports connections that could not be closed.
func (p *Plugin) Run(ctx context.Context) (err error) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all.Go(func() { p.publisher.Run(ctx) })
	all.Go(func() { p.Tend(ctx) })
	p.watcher.Run(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, d := range p.drivers {
		err = errors.Join(err, d.client.Close())
		delete(p.drivers, name)
	}
	return err
}

// NodeChanged must be called when the API server has a new Node, and when the result of Options.InUse may have changed.
func (p *Plugin) NodeChanged() {
	p.changed.Notify()
	node := p.o.Node()
	if node == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.node != node.UID { // its CSINode was deleted with it
		p.node = node.UID
		p.publisher.Wake()
	}
}

// driver returns the registered driver of a name, or nil.
func (p *Plugin) driver(name string) *mounts.Driver {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.drivers[name]; d != nil {
		return &d.Driver
	}
	return nil
}

// register registers a driver with the API server and under its name.
func (p *Plugin) register(ctx context.Context, q plugins.Plugin) (*plugins.Registration, error) {
	v, err := version.HighestSupportedVersion(q.Versions)
	if err != nil {
		return nil, fmt.Errorf("none of the versions of CSI driver %s are supported: %w: %w", q.Name, err, plugins.ErrUnsupported)
	}
	client, err := driver.New(driver.Options{Name: q.Name, Endpoint: q.Endpoint})
	if err != nil {
		return nil, err
	}
	d := &registered{client: client, version: v, again: make(chan struct{})}
	if err := p.claimName(ctx, q.Name, d); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	p.o.Changed()
	return &plugins.Registration{Again: d.again, Unregister: func() {
		p.releaseName(q.Name, d)
		if err := client.Close(); err != nil {
			p.o.Logger.Warn("closing the connection to a CSI driver failed", "driver", q.Name, "error", err)
		}
	}}, nil
}

// claimName takes the driver's name, after it has read the driver's capabilities. It does not call a driver without a
// free name.
func (p *Plugin) claimName(ctx context.Context, name string, d *registered) (err error) {
	p.mu.Lock()
	err = p.free(name, d)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if d.Facts, err = d.client.ReadFacts(ctx); err != nil {
		return err
	}
	d.Node = d.client
	if err := p.claim(name, d); err != nil {
		return err
	}
	if err = p.publisher.Add(ctx, name, d.Facts); err != nil {
		p.releaseName(name, d)
	}
	return err
}

// free returns an error if another driver has the name, unless its version is lower. The caller holds mu.
func (p *Plugin) free(name string, d *registered) error {
	if has := p.drivers[name]; has != nil && !has.version.LessThan(d.version) {
		return fmt.Errorf("another CSI driver %s is already registered with a higher supported version: %q", name, has.version)
	}
	return nil
}

// claim registers a driver under its name if the name is free.
func (p *Plugin) claim(name string, d *registered) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.free(name, d); err != nil {
		return err
	}
	if has := p.drivers[name]; has != nil {
		p.older[name] = append(p.older[name], has)
	}
	p.drivers[name] = d
	return nil
}

// releaseName releases a driver's name. If a newer driver has the name, that one stays. Otherwise the drivers that have
// lost the name to this one register again.
func (p *Plugin) releaseName(name string, d *registered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.older[name] = slices.DeleteFunc(p.older[name], func(one *registered) bool { return one == d })
	if p.drivers[name] == d {
		delete(p.drivers, name)
		p.publisher.Remove(name)
		for _, one := range p.older[name] {
			close(one.again)
		}
		p.older[name] = nil
	}
	if len(p.older[name]) == 0 {
		delete(p.older, name)
	}
}
