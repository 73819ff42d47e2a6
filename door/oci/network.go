package oci

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/door/oci/surrogate"
	"github.com/bulkhead-project/bulkhead/door/remote/client"
	run "github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/userns"
	"github.com/bulkhead-project/bulkhead/network/adopt"
	"github.com/bulkhead-project/bulkhead/network/adopt/inside"
	"github.com/bulkhead-project/bulkhead/oci/convert"
)

// The kinds of network that the door asks the engine for.
const (
	hostNetwork    = "host"
	adoptedNetwork = "adopted"
)

// network completes the request for a VM with its network: the host's, or a card that takes the place of the interfaces
// in the container's network namespace. The caller closes the card.
func (c *creation) network(r *enginev1.StartRequest) (card *os.File, err error) {
	if c.plan.Namespaces.Network.Kind == convert.OfHost {
		r.Network = hostNetwork
		return nil, nil
	}
	namespace, err := os.Open(c.record.networkPath())
	if err != nil {
		return nil, fmt.Errorf("open the network namespace: %w", err)
	}
	defer namespace.Close()
	card, err = adopt.MakeTap(namespace, adopt.TapName(0))
	if err != nil {
		return nil, fmt.Errorf("make the VM's network card: %w", err)
	}
	self, err := procid.Self()
	if err != nil {
		return nil, errors.Join(err, card.Close())
	}
	r.Network, r.Holder, r.TapFd = adoptedNetwork, holder(self), int32(card.Fd())
	return card, nil
}

func holder(id procid.ID) *enginev1.Holder {
	return &enginev1.Holder{Pid: int32(id.PID), Started: id.Start}
}

// networkPath is the path of the network namespace of the surrogate.
func (r *record) networkPath() string { return fmt.Sprintf("/proc/%d/ns/net", r.Surrogate.PID) }

// adopts reports whether the VM takes the place of interfaces in the container's network namespace.
func (r *record) adopts() bool { return r.Pod.Own && r.Pod.Network == adoptedNetwork }

// adopt lets the VM take the place of the interfaces in the container's network namespace. Clients make these after
// create, so the container's start does it, and watches for later ones.
func (d *Door) adopt(ctx context.Context, r *record) error {
	if !r.adopts() {
		return nil
	}
	if u, err := r.users(); err == nil && u.path != "" {
		// The surrogate is in a user namespace, and may not call the engine.
		d.o.Logger.Info("later changes of the network do not reach a container in a user namespace", "container", r.ID)
	} else if err := d.watch(ctx, r); err != nil {
		d.o.Logger.Warn("later changes of the network do not reach the container", "container", r.ID, "error", err)
	}
	return d.join(ctx, r, run.StartDetached)
}

// networkLog is the file in a container's directory with the last errors of Network.
const networkLog = "network.log"

// watch makes the surrogate call Network when the interfaces change. It runs bulkhead-oci for that.
func (d *Door) watch(ctx context.Context, r *record) error {
	program, err := dirs.Sibling("bulkhead-oci")
	if err != nil {
		return err
	}
	f, err := r.Surrogate.File(surrogate.ClientFD)
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := inside.NewClient(f)
	if err != nil {
		return err
	}
	defer c.Close()
	var env []string
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if name == "PATH" || name == "HOME" || strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "BULKHEAD_") {
			env = append(env, variable)
		}
	}
	return c.Watch(ctx, env, []string{
		program, "--root", d.o.Root, "--log", filepath.Join(d.o.Root, r.ID, networkLog), "network", r.ID,
	})
}

// Network lets the VM of a container take the place of the interfaces that its network namespace has now. The container
// must be started. No engine is started for it: it would run in the container's place.
func (d *Door) Network(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callWait)
	defer cancel()
	r, unlock, err := d.locked(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if !r.adopts() || !r.Started || !alive(r.Surrogate) {
		return nil
	}
	return d.join(ctx, r, nil)
}

// join redirects the interfaces, and configures them in the guest. If no engine runs, it fails without start.
func (d *Door) join(ctx context.Context, r *record, start run.Starter) (err error) {
	namespace, err := os.Open(r.networkPath())
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer namespace.Close()
	found, err := adopt.Join(namespace)
	if err != nil {
		return fmt.Errorf("take over the network: %w", err)
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	self, err := procid.Self()
	if err != nil {
		return err
	}
	request := &enginev1.UpdateNetworkRequest{Door: doorName, Id: r.Pod.ID, Interfaces: client.Interfaces(found.Interfaces)}
	if len(request.Interfaces) == 0 && !r.Started {
		return nil
	}
	// The programs that carry the network of an ordinary user's containers connect to published ports from inside.
	_, inner := userns.Inner()
	if publish := inner && len(request.Interfaces) > 0; publish || found.Resolver {
		request.Namespace = &enginev1.Namespace{
			Holder: holder(r.Surrogate), Fd: surrogate.ClientFD, Resolver: found.Resolver, Publish: publish,
		}
	}
	for _, tap := range found.Taps {
		request.Holder = holder(self)
		request.TapFds = append(request.TapFds, int32(tap.Fd()))
	}
	err = askWith(ctx, start, func(e enginev1.EngineClient) error {
		_, err := e.UpdateNetwork(ctx, request)
		return err
	})
	if err != nil {
		return fmt.Errorf("configure the network: %w", plain(err))
	}
	return nil
}

// leave gives the interfaces of a network namespace that outlives the container back to it.
func (r *record) leave() error {
	if r.Pod.Namespace == "" {
		return nil
	}
	namespace, err := os.Open(r.Pod.Namespace)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the network namespace: %w", err)
	}
	defer namespace.Close()
	if err := adopt.Leave(namespace); err != nil {
		return fmt.Errorf("give the network back: %w", err)
	}
	return nil
}
