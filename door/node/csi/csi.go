// Package csi has the CSI drivers of a host serve the pods of its node: they register as with a kubelet, the API server is
// told of them, and their volumes are mounted for pods. What does this lies in the packages below; this one puts it
// together.
package csi

import (
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

	"github.com/bulkhead-project/bulkhead/door/node/claims"
	"github.com/bulkhead-project/bulkhead/door/node/csi/attach"
	"github.com/bulkhead-project/bulkhead/door/node/csi/driver"
	"github.com/bulkhead-project/bulkhead/door/node/csi/mounts"
	"github.com/bulkhead-project/bulkhead/door/node/csi/nodeinfo"
	"github.com/bulkhead-project/bulkhead/door/node/csi/plugins"
	"github.com/bulkhead-project/bulkhead/internal/broadcast"
)

// Annotation is that of a Node to which volumes are attached by the cluster's controllers.
const Annotation = "volumes.kubernetes.io/controller-managed-attach-detach"

// Options are a Plugin's. All but Changed and Logger are required.
type Options struct {
	// Root is the root directory of a kubelet, where drivers look for a node: an absolute path.
	Root string
	// Dir is where the records of what is mounted lie.
	Dir    string
	Client kubernetes.Interface
	// Name is the node's, and Node is it as the API server had it last, nil for none.
	Name string
	Node func() *corev1.Node
	// InUse tells whether the API server has confirmed that the node uses a volume.
	InUse func(corev1.UniqueVolumeName) bool
	// Tell has the node's status be told now. It must not block.
	Tell func()
	// Changed is called when there is another driver than before; it must not block.
	Changed func()
	Logger  *slog.Logger
}

var _ claims.Mounter = (*Plugin)(nil)

// Plugin is the CSI drivers of a host. Its methods may be called at once.
type Plugin struct {
	*mounts.Mounter
	o       Options
	teller  *nodeinfo.Teller
	watcher *plugins.Watcher
	changed broadcast.Broadcast // of the Node

	mu      sync.Mutex
	drivers map[string]*registered
	older   map[string][]*registered // those that have lost their name to one of a higher version
	node    types.UID
}

// registered is a driver that is.
type registered struct {
	mounts.Driver
	client  *driver.Client
	version *version.Version
	again   chan struct{} // closed when the name that it has lost is free
}

// New makes a Plugin of what an earlier one has left. The caller calls Run once, and Close.
func New(o Options) (*Plugin, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Changed == nil {
		o.Changed = func() {}
	}
	p := &Plugin{o: o, drivers: map[string]*registered{}, older: map[string][]*registered{}, teller: nodeinfo.New(o.Client, o.Name, o.Logger)}
	waiter := attach.New(attach.Options{Client: o.Client, Name: o.Name, Node: o.Node, InUse: o.InUse, Changed: p.changed.Next})
	var err error
	p.Mounter, err = mounts.Open(mounts.Options{
		Root: o.Root, Dir: o.Dir, Client: o.Client, Node: o.Name, Driver: p.driver, Changed: o.Tell, Logger: o.Logger,
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

// Run has drivers register until ctx ends. What is mounted stays mounted. The error is of connections that did not close.
func (p *Plugin) Run(ctx context.Context) (err error) {
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	all.Go(func() { p.teller.Run(ctx) })
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

// NodeChanged is to be called when the API server has another Node than before, and when Options.InUse may say something else.
func (p *Plugin) NodeChanged() {
	p.changed.Tell()
	node := p.o.Node()
	if node == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.node != node.UID { // its CSINode went with it
		p.node = node.UID
		p.teller.Look()
	}
}

// driver is the registered one of a name, nil for none.
func (p *Plugin) driver(name string) *mounts.Driver {
	p.mu.Lock()
	defer p.mu.Unlock()
	if d := p.drivers[name]; d != nil {
		return &d.Driver
	}
	return nil
}

// register takes a driver in when the API server was told of it.
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
	if err := p.enter(ctx, q.Name, d); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	p.o.Changed()
	return &plugins.Registration{Again: d.again, Unregister: func() {
		p.leave(q.Name, d)
		if err := client.Close(); err != nil {
			p.o.Logger.Warn("closing the connection to a CSI driver failed", "driver", q.Name, "error", err)
		}
	}}, nil
}

// enter asks a driver for what it can do, and gives it its name. One that cannot have the name is not asked.
func (p *Plugin) enter(ctx context.Context, name string, d *registered) (err error) {
	p.mu.Lock()
	err = p.free(name, d)
	p.mu.Unlock()
	if err != nil {
		return err
	}
	if d.Facts, err = d.client.Ask(ctx); err != nil {
		return err
	}
	d.Node = d.client
	if err := p.take(name, d); err != nil {
		return err
	}
	if err = p.teller.Add(ctx, name, d.Facts); err != nil {
		p.leave(name, d)
	}
	return err
}

// free fails while a driver's name is another one's, unless its own version is higher. The caller holds mu.
func (p *Plugin) free(name string, d *registered) error {
	if has := p.drivers[name]; has != nil && !has.version.LessThan(d.version) {
		return fmt.Errorf("another CSI driver %s is already registered with a higher supported version: %q", name, has.version)
	}
	return nil
}

// take gives a driver its name, if that is free.
func (p *Plugin) take(name string, d *registered) error {
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

// leave takes the name from a driver. Where another one has it by now, that one stays; else those that have lost it to this one
// register again.
func (p *Plugin) leave(name string, d *registered) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.older[name] = slices.DeleteFunc(p.older[name], func(one *registered) bool { return one == d })
	if p.drivers[name] == d {
		delete(p.drivers, name)
		p.teller.Remove(name)
		for _, one := range p.older[name] {
			close(one.again)
		}
		p.older[name] = nil
	}
	if len(p.older[name]) == 0 {
		delete(p.older, name)
	}
}
