// Package cni attaches pods to the network of a node by the node's CNI plugins. A pod has a network namespace of its
// own. Its tap, the VM's card, is connected with the interface that the plugins make: packets that enter one leave at
// the other. The guest gets the interface's hardware address, addresses, routes and MTU. No process runs in that
// namespace.
package cni

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/version"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/network"
)

// The directories of a node's CNI, as containerd and CRI-O know them.
const (
	DefaultConf = "/etc/cni/net.d"
	DefaultBin  = "/opt/cni/bin"
	DebianBin   = "/usr/lib/cni"
)

// namespaces is the directory of the pods' network namespaces, where ip-netns(8) sees them.
const namespaces = "/run/netns"

// ifName is the name of the interface that plugins make.
const ifName = "eth0"

// The plugins' time limits. Afterwards they are killed.
const (
	addTimeout    = time.Minute
	delTimeout    = time.Minute
	statusTimeout = 10 * time.Second
	// Starts of pods wait for a collection.
	collectTimeout = 20 * time.Second
)

// ErrNotReady is matched while pods cannot be attached.
var ErrNotReady = errors.New("network plugin is not ready")

// Options configure a Provider. All are required.
type Options struct {
	// Conf is the directory of the network configurations. The first one by name is used. It is read for each pod, so a
	// change applies from the next pod on.
	Conf string
	// Bin are the directories of the plugins.
	Bin []string
	// Dir holds the records that are needed to detach pods. It must outlive a reboot, as the plugins' own records do.
	Dir    string
	Logger *slog.Logger
}

// Provider is the network.Provider.
type Provider struct {
	o   Options
	cni *libcni.CNIConfig

	// working is locked for reading while plugins work on a pod, and for writing during a collection.
	working sync.RWMutex

	mu     sync.Mutex
	adding map[string]*adding // by the pods' ids, while the plugins run
}

// New returns a provider. It does not look at the host yet.
func New(o Options) *Provider {
	return &Provider{
		o: o, adding: map[string]*adding{},
		cni: libcni.NewCNIConfigWithCacheDir(o.Bin, filepath.Join(o.Dir, "cache"), programs{&version.PluginDecoder{}}),
	}
}

// Kind returns KindCNI.
func (p *Provider) Kind() (network.Kind, string) { return network.KindCNI, "" }

// Status asks the plugins whether they can attach pods. Plugins of older versions are not asked.
func (p *Provider) Status(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	list, err := p.load()
	if err == nil {
		err = p.cni.GetStatusNetworkList(ctx, list)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return nil
}

// Example returns a network with addresses for documentation (RFC 5737).
func (p *Provider) Example() *agentv1.Network {
	return &agentv1.Network{Addresses: []string{"192.0.2.2/24"}, Gateways: []string{"192.0.2.1"}}
}

// Release does nothing: pods share nothing.
func (p *Provider) Release(context.Context) error { return nil }

// Close kills plugins that still run, and waits for them.
func (p *Provider) Close() {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.adding))
	p.mu.Unlock()
	for _, a := range all {
		a.stop()
	}
}

// namespace returns the path of a pod's network namespace.
func namespace(id string) string { return filepath.Join(namespaces, "bulkhead-"+id) }
