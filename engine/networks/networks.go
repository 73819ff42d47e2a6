// Package networks holds the network providers of an engine, one for each kind.
package networks

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/network/cni"
)

// DeviceOf returns the network device of VMs in a network of that kind. Each kind has its own device, so that a VM
// of one kind never serves a pod of another.
func DeviceOf(kind network.Kind) hypervisor.Network {
	if kind == network.KindCNI {
		return hypervisor.NetworkTap
	}
	return hypervisor.Network(kind)
}

// asked returns the requested kind; kind may be a reduced form of it.
func asked(kind network.Kind) network.Kind {
	if kind == network.KindRestricted {
		return network.KindUser
	}
	return kind
}

// KindOf returns the kind of network of a VM.
func KindOf(m hypervisor.VMConfig) network.Kind {
	if m.Network == hypervisor.NetworkTap {
		return network.KindCNI
	}
	return network.Kind(m.Network)
}

// Networks holds the providers of an engine. Its methods are safe for concurrent use. Creating the first provider
// of a kind takes a while.
type Networks struct {
	open func(network.Kind) (network.Provider, error)

	mu        sync.Mutex // held while a provider is created
	providers map[network.Kind]provider
	replaced  []network.Provider // by better ones
}

type provider struct {
	network.Provider
	retry time.Time // when to probe for a better one; zero means never
}

// networkRetry is how long pods may start with a reduced network before the next start probes again.
const networkRetry = time.Minute

// New returns Networks with providers from open, which is called once for each kind.
func New(open func(network.Kind) (network.Provider, error)) *Networks {
	return &Networks{open: open, providers: map[network.Kind]provider{}}
}

// Get returns the network of a kind.
func (n *Networks) Get(kind network.Kind) (network.Provider, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, ok := n.providers[kind]
	if ok && (old.retry.IsZero() || time.Now().Before(old.retry)) {
		return old.Provider, nil
	}
	p, err := n.open(kind)
	if err != nil {
		return nil, fmt.Errorf("network %s: %w", kind, err)
	}
	if ok {
		n.replaced = append(n.replaced, old.Provider)
	}
	next := provider{Provider: p}
	if got, _ := p.Kind(); got == network.KindRestricted {
		next.retry = time.Now().Add(networkRetry)
	}
	n.providers[kind] = next
	return p, nil
}

// Of returns the provider for a VM's kind of network, which may be a reduced form of the requested kind.
func (n *Networks) Of(kind network.Kind) (network.Provider, error) {
	return n.Get(asked(kind))
}

// Collector is a network that can free the resources of removed pods. exists reports whether there is a pod.
type Collector interface {
	Collect(ctx context.Context, exists func(id string) bool) error
}

// Collect frees the resources of removed pods in the network of a kind, if the network supports it.
func (n *Networks) Collect(ctx context.Context, kind network.Kind, exists func(id string) bool) error {
	p, err := n.Get(kind)
	if c, ok := p.(Collector); err == nil && ok {
		err = c.Collect(ctx, exists)
	}
	return err
}

// Close stops the providers' work in this process.
func (n *Networks) Close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, p := range n.replaced {
		p.Close()
	}
	for _, p := range n.providers {
		p.Close()
	}
}

// Release frees the pods' shared resources when there are no pods left.
func (n *Networks) Release(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	var errs []error
	for _, p := range n.replaced {
		errs = append(errs, p.Release(ctx))
	}
	for _, p := range n.providers {
		errs = append(errs, p.Release(ctx))
	}
	return errors.Join(errs...)
}

// Own returns a function that opens the networks of an instance, with their state below dir. plugins may be nil.
func Own(dir string, plugins *cni.Options) func(network.Kind) (network.Provider, error) {
	return func(kind network.Kind) (network.Provider, error) {
		switch kind {
		case network.KindNone:
			return network.None{}, nil
		case network.KindUser, network.KindHostLoopback:
			dir := filepath.Join(dir, "net")
			if err := dirs.Ensure(dir, 0o700); err != nil {
				return nil, err
			}
			return network.NewUser(context.Background(), dir, kind == network.KindHostLoopback), nil // bounded by itself
		case network.KindHost:
			return network.Host{}, nil
		case network.KindAdopted:
			return network.Adopted{}, nil
		case network.KindCNI:
			if plugins != nil {
				return cni.New(*plugins), nil
			}
		}
		return nil, fmt.Errorf("network %q: use user or none", kind)
	}
}
