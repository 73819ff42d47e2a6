package cni

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/network/adopt"
)

// adding is a run of the plugins that adds one pod.
type adding struct {
	cancel context.CancelFunc
	done   chan struct{}
	path   string // the namespace
	guest  *agentv1.Network
	more   []*agentv1.Network // of further interfaces
	dns    types.DNS
	err    error
}

// stop kills the plugins and waits for them.
func (w *adding) stop() {
	w.cancel()
	<-w.done
}

// Attach creates the pod's namespace and starts the plugins. Complete waits for them. If the pod has its namespace
// already, the attachment only leads into it.
func (p *Provider) Attach(ctx context.Context, r network.Request) (network.Attachment, error) {
	path := namespace(r.ID)
	if holds(path) {
		return network.None{}.Attach(ctx, network.Request{ID: r.ID})
	}
	p.working.RLock()
	begun := false
	defer func() {
		if !begun {
			p.working.RUnlock()
		}
	}()
	list, err := p.load()
	if err != nil {
		return network.Attachment{}, fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	rec := record{List: list.Bytes, Args: arguments(r)}
	var left []network.Port
	if rec.Capabilities, left, err = capabilities(list, r); err != nil {
		return network.Attachment{}, err
	}
	left = slices.Clone(left)
	for i := range left {
		if left[i].HostIP == "" {
			left[i].HostIP = "::" // a node publishes ports on all of its addresses
		}
	}
	if err := p.keep(r.ID, rec); err != nil {
		return network.Attachment{}, err
	}
	a, err := network.None{}.Attach(ctx, network.Request{ID: r.ID, Ports: left, DNS: r.DNS})
	if err != nil {
		return network.Attachment{}, err
	}
	fault.Point("cni.recorded")
	if a.Tap, err = makeNamespace(path); err != nil {
		return a, err
	}
	fault.Point("cni.namespace")
	work := p.startAdd(ctx, list, rec.runtimeConf(r.ID, path))
	begun = true
	a.Complete = func(ctx context.Context, a *network.Attachment) error { return work.complete(ctx, a, r.DNS) }
	return a, nil
}

// arguments returns the plugins' arguments about a pod (CNI_ARGS).
func arguments(r network.Request) [][2]string {
	return [][2]string{
		{"IgnoreUnknown", "1"},
		{"K8S_POD_NAMESPACE", r.Namespace}, {"K8S_POD_NAME", r.Name}, {"K8S_POD_UID", r.UID},
		{"K8S_POD_INFRA_CONTAINER_ID", r.ID},
	}
}

// startAdd starts the plugins that add the pod, and then joins their interface to its VM's tap. Detach and Close wait
// for it. It unlocks p.working when it has ended.
func (p *Provider) startAdd(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) *adding {
	ctx, cancel := context.WithTimeout(ctx, addTimeout)
	work := &adding{cancel: cancel, done: make(chan struct{}), path: rt.NetNS}
	p.mu.Lock()
	p.adding[rt.ContainerID] = work
	p.mu.Unlock()
	go func() {
		defer p.working.RUnlock()
		defer close(work.done)
		defer p.ended(rt.ContainerID)
		defer cancel()
		work.err = p.add(ctx, list, rt, work)
		if work.err != nil && ctx.Err() != nil {
			work.err = fmt.Errorf("%w (%w)", context.Cause(ctx), work.err)
		}
	}()
	return work
}

// ended removes the run of a pod.
func (p *Provider) ended(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.adding, id)
}

func (p *Provider) add(ctx context.Context, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf, work *adding) error {
	res, err := p.cni.AddNetworkList(ctx, list, rt)
	if err != nil {
		return fmt.Errorf("add to network %s: %w", list.Name, err)
	}
	fault.Point("cni.added")
	err = inside(rt.NetNS, func() (err error) {
		work.guest, work.more, err = adopt.JoinNamed(ifName, tapName)
		return err
	})
	if err != nil {
		return fmt.Errorf("network %s: %w", list.Name, err)
	}
	result, err := types100.NewResultFromResult(res)
	if err != nil {
		return fmt.Errorf("read the result of network %s: %w", list.Name, err)
	}
	work.dns = result.DNS
	return nil
}

// complete waits for the plugins. The pod's own DNS takes precedence over the network's, and that over the host's.
func (w *adding) complete(ctx context.Context, a *network.Attachment, own *network.DNS) error {
	select {
	case <-w.done:
	case <-ctx.Done():
		return fmt.Errorf("wait for the network plugins: %w", ctx.Err())
	}
	if w.err != nil {
		return w.err
	}
	var err error
	if len(w.more) > 0 {
		err = inside(w.path, func() (err error) {
			a.Cards, err = adopt.JoinMore(w.more)
			return err
		})
	}
	if err != nil {
		return err
	}
	// As with other runtimes, the pod's addresses are those of its first interface, which its peers know.
	a.Guest, a.IPs = w.guest, network.IPs(w.guest)
	if own != nil && len(own.Servers) > 0 {
		return nil
	}
	dns := network.DNS{Servers: w.dns.Nameservers, Searches: w.dns.Search, Options: w.dns.Options}
	if len(dns.Servers) == 0 {
		dns = network.Resolver(network.KindCNI)
	}
	if own != nil {
		dns.Searches, dns.Options = own.Searches, own.Options
	}
	a.DNS = dns
	return nil
}

// Detach makes the plugins release the pod's addresses, and removes its namespace. The VM may still run, but is cut off
// from the network first. After a failure, everything that the next try needs is kept.
func (p *Provider) Detach(ctx context.Context, id string) error {
	p.mu.Lock()
	work := p.adding[id]
	p.mu.Unlock()
	if work != nil {
		work.stop()
	}
	p.working.RLock()
	defer p.working.RUnlock()
	rec, err := p.recordOf(id)
	path := namespace(id)
	if errors.Is(err, os.ErrNotExist) { // Attach has not started, or Detach has ended
		return removeNamespace(path)
	}
	if err != nil {
		return err
	}
	if err := silence(path); err != nil {
		return err
	}
	if err := p.del(ctx, id, rec, path); err != nil {
		return err
	}
	fault.Point("cni.deleted")
	if err := removeNamespace(path); err != nil {
		return err
	}
	fault.Point("cni.removed")
	return p.forget(id)
}

// del runs on a context of its own: an address that is not released is lost.
func (p *Provider) del(ctx context.Context, id string, rec record, path string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), delTimeout)
	defer cancel()
	list, err := libcni.NetworkConfFromBytes(rec.List)
	if err != nil {
		return fmt.Errorf("read the network that pod %s was added to: %w", id, err)
	}
	if !holds(path) {
		path = "" // plugins then know that it is gone
	}
	if err := p.cni.DelNetworkList(ctx, list, rec.runtimeConf(id, path)); err != nil {
		return fmt.Errorf("delete from network %s: %w", list.Name, err)
	}
	return nil
}
