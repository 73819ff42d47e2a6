// Package cni attaches pods to the network of a node by the CNI plugins that are configured
// on it. A pod has a network namespace of its own, in which a tap, the VM's card, stands for
// the interface that the plugins make: what comes in at one leaves at the other, and the
// guest is given the interface's hardware address, its addresses, routes and MTU. Nothing
// else runs in that namespace.
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

// Where nodes have their CNI, as containerd and CRI-O look for it.
const (
	DefaultConf = "/etc/cni/net.d"
	DefaultBin  = "/opt/cni/bin"
	DebianBin   = "/usr/lib/cni"
)

// namespaces is where the pods' network namespaces are held, for ip-netns(8) to see them.
const namespaces = "/run/netns"

// ifName is the interface that plugins make.
const ifName = "eth0"

// Each of the plugins' tasks has a deadline of its own, after which they are killed.
const (
	addTimeout    = time.Minute
	delTimeout    = time.Minute
	statusTimeout = 10 * time.Second
	// Pods that are being started wait for it.
	collectTimeout = 20 * time.Second
)

var (
	// ErrNotReady is matched while pods cannot be attached.
	ErrNotReady   = errors.New("network plugin is not ready")
	errInterfaces = errors.New("an interface that a VM cannot have")
	errNoAddress  = errors.New("the plugins gave it no address")
)

// Options say where the parts are. All are required.
type Options struct {
	// Conf is the directory of the network configurations, of which the first by name is
	// taken. It is read for each pod, so that a change holds from the next pod on.
	Conf string
	// Bin are the directories of the plugins.
	Bin []string
	// Dir keeps what is needed to detach pods. It outlives a reboot, as what plugins keep
	// does.
	Dir    string
	Logger *slog.Logger
}

// Provider is the network.Provider.
type Provider struct {
	o   Options
	cni *libcni.CNIConfig

	// working is held for reading while plugins are at work on a pod, and for writing while
	// all that no pod has is collected.
	working sync.RWMutex

	mu     sync.Mutex
	adding map[string]*adding // by the pods' ids, while the plugins run
}

// New makes the provider. It asks nothing of the host yet.
func New(o Options) *Provider {
	return &Provider{
		o: o, adding: map[string]*adding{},
		cni: libcni.NewCNIConfigWithCacheDir(o.Bin, filepath.Join(o.Dir, "cache"), programs{&version.PluginDecoder{}}),
	}
}

// Kind is KindCNI.
func (p *Provider) Kind() (network.Kind, string) { return network.KindCNI, "" }

// Status asks the plugins whether they can attach pods, where they know the question.
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

// Example is a network of the addresses that are for examples (RFC 5737).
func (p *Provider) Example() *agentv1.Network {
	return &agentv1.Network{Addresses: []string{"192.0.2.2/24"}, Gateways: []string{"192.0.2.1"}}
}

// Release does nothing: pods share nothing here.
func (p *Provider) Release(context.Context) error { return nil }

// Close waits for plugins that still run.
func (p *Provider) Close() {
	p.mu.Lock()
	all := slices.Collect(maps.Values(p.adding))
	p.mu.Unlock()
	for _, a := range all {
		a.end()
	}
}

// namespace is the path of a pod's network namespace.
func namespace(id string) string { return filepath.Join(namespaces, "bulkhead-"+id) }
