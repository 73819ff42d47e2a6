// Package network connects pods. It provides the network namespace of a pod's VM, the addresses of its guest, and the
// ports that it publishes.
package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/tap"
)

// Kind is a kind of network.
type Kind string

// The kinds. Pods ask for all but KindRestricted, a form of KindUser.
const (
	KindNone         Kind = "none"          // the guest has no network device
	KindUser         Kind = "user"          // external networks, but not the host
	KindHostLoopback Kind = "host-loopback" // also the host's loopback, if asked for and if there is no namespace
	KindRestricted   Kind = "restricted"    // no traffic leaves the pod: KindUser without a namespace
	KindHost         Kind = "host"          // the host's own
	KindCNI          Kind = "cni"           // the network of a node, by its CNI plugins (package network/cni)
	KindAdopted      Kind = "adopted"       // a client's network namespace (package network/adopt)
)

// ErrNotSupported is returned for a request that this network cannot fulfil.
var ErrNotSupported = errdefs.ErrNotImplemented.WithMessage("not supported by this network")

// Request is a pod's request to its network.
type Request struct {
	ID string // the VM's, as passed to Detach
	// Name, Namespace and UID are the pod's.
	Name, Namespace, UID string
	Ports                []Port // to be published
	DNS                  *DNS   // the pod's own; nil means the network's
	// Bandwidth is refused, with ErrNotSupported, by networks that cannot limit it.
	Bandwidth Bandwidth
	// Tap is the VM's card in a network of KindAdopted. It is nil if the VM has it already.
	Tap *Held
}

// Held is a descriptor that a client's process holds for the engine.
type Held struct {
	Holder procid.ID `json:"holder"`
	FD     int       `json:"fd"`
}

// Take returns a duplicate of the descriptor. It must be a tap as package internal/tap creates. The caller closes it.
func (h Held) Take() (*os.File, error) {
	f, err := h.Holder.File(h.FD)
	if err != nil {
		return nil, err
	}
	if err := tap.Check(f); err != nil {
		return nil, errors.Join(fmt.Errorf("descriptor %d of process %d: %w", h.FD, h.Holder.PID, err), f.Close())
	}
	return f, nil
}

// DNS configures name resolution, in the terms of resolv.conf(5).
type DNS struct {
	Servers, Searches, Options []string
}

// Bandwidth limits a pod's traffic, in bits per second; zero means no limit.
type Bandwidth struct {
	Ingress, Egress int64
}

// Provider attaches pods to one kind of network. Its methods may be called concurrently for different pods. Detach is
// idempotent, and works in another process than Attach, by the records on disk.
type Provider interface {
	// Kind returns the kind of network that pods get. It may be a lesser kind than requested; reason then has the
	// cause.
	Kind() (kind Kind, reason string)
	// Status returns nil if pods can be attached now, and the reason if not.
	Status(ctx context.Context) error
	// Example returns a valid configuration for a guest, as in Attachment, that no pod uses.
	Example() *agentv1.Network
	// Attach prepares a pod's network. It may be called again for the same VM: for a VM that was started ahead of its
	// pod with the pod's request, and after the death of its shim with a request without ports. The caller owns the
	// listeners.
	Attach(ctx context.Context, r Request) (Attachment, error)
	Detach(ctx context.Context, id string) error
	// Release frees the parts that pods share. The engine calls it after the end of its last pod. The next Attach
	// creates them again.
	Release(ctx context.Context) error
	// Close stops the provider's activity in this process. It keeps the parts that pods share.
	Close()
}

// Attachment is one pod's place in the network.
type Attachment struct {
	// Start starts a process in the pod's network namespace, from the calling thread. The process inherits the other
	// namespaces of that thread.
	Start func(*exec.Cmd) error
	// Place returns the place of Start's processes, for a process that enters it by itself.
	Place func() (Place, error)
	// Guest is the configuration for the agent; nil means no interface but loopback.
	Guest *agentv1.Network
	// IPs are the pod's addresses as its status shows them.
	IPs []string
	// DNS is the guest's resolver configuration.
	DNS DNS
	// Listeners are the published ports.
	Listeners []Listener
	// Tap is the VM's network card, nil if it needs none. The caller closes it.
	Tap *os.File
	// Cards belong to the pod's further interfaces. The VM starts without them.
	Cards []Card
	// Complete, if not nil, waits until Guest, IPs, DNS and Cards are known, and sets them. The VM may be started
	// before.
	Complete func(ctx context.Context, a *Attachment) error
}

// IPs returns the addresses of the first interface, as the pod's peers know them. Interfaces may be nil.
func IPs(interfaces ...*agentv1.Network) (ips []string) {
	for _, n := range interfaces {
		if n == nil {
			continue
		}
		for _, address := range n.Addresses {
			if p, err := netip.ParsePrefix(address); err == nil {
				ips = append(ips, p.Addr().String())
			}
		}
		break
	}
	return ips
}

// Card is one more network card of a VM.
type Card struct {
	Guest *agentv1.Network // with its interface's name
	Tap   *os.File         // closed by the caller
}

// CloseCards closes the taps.
func CloseCards(cards []Card) error {
	var errs []error
	for _, c := range cards {
		errs = append(errs, c.Tap.Close())
	}
	return errors.Join(errs...)
}

// Place is the network namespace of a pod's processes. The caller closes its files.
type Place struct {
	// User is the user namespace that Net belongs to. It must be entered first; nil means the caller's own.
	User *os.File
	// Net is nil for the caller's own namespace or, with Alone, for a new empty one.
	Net   *os.File
	Alone bool
}

// Close closes the files.
func (p Place) Close() error {
	var errs []error
	for _, f := range []*os.File{p.User, p.Net} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

// home returns the caller's own place.
func home() (Place, error) { return Place{}, nil }

// attach adds the parts that all kinds of networks have in common: the ports, and the pod's DNS in place of the
// network's. If the pod has no servers, the network's stay.
func (a Attachment) attach(r Request) (Attachment, error) {
	if r.Bandwidth != (Bandwidth{}) {
		return Attachment{}, fmt.Errorf("%w: bandwidth limits", ErrNotSupported)
	}
	if r.DNS != nil {
		servers := a.DNS.Servers
		a.DNS = *r.DNS
		if len(a.DNS.Servers) == 0 {
			a.DNS.Servers = servers
		}
	}
	var err error
	a.Listeners, err = Listen(r.Ports)
	return a, err
}
