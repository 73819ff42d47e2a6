// Package network connects pods: the namespace that a pod's VM runs in, the
// addresses that its guest takes, and the ports that it publishes.
package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Kind is a kind of network.
type Kind string

// The kinds. Pods ask for all but KindRestricted, a form of KindUser.
const (
	KindNone         Kind = "none"          // the guest has no network device
	KindUser         Kind = "user"          // the outside, and nothing of the host
	KindHostLoopback Kind = "host-loopback" // also the host's loopback, for who asked, where there is no namespace
	KindRestricted   Kind = "restricted"    // nothing leaves the pod: KindUser where there is no namespace
	KindHost         Kind = "host"          // the host's own
	KindCNI          Kind = "cni"           // the network of a node, by its CNI plugins (package network/cni)
)

// ErrNotSupported is returned for a wish that this network cannot grant.
var ErrNotSupported = errors.New("not supported by this network")

// Request is what a pod asks of its network.
type Request struct {
	ID string // the VM's, which Detach names
	// Name, Namespace and UID are the pod's.
	Name, Namespace, UID string
	Ports                []Port // to be published
	DNS                  *DNS   // the pod's own; nil is the network's
	// Bandwidth is refused, with ErrNotSupported, by networks that cannot limit it.
	Bandwidth Bandwidth
}

// DNS is how names are resolved, in the terms of resolv.conf(5).
type DNS struct {
	Servers, Searches, Options []string
}

// Bandwidth limits a pod's traffic, in bits a second; zero is no limit.
type Bandwidth struct {
	Ingress, Egress int64
}

// Provider attaches pods to one kind of network. Its methods may be called at
// once for different pods; Detach is idempotent and works in another process
// than Attach's, from what lies on disk.
type Provider interface {
	// Kind is the network that pods get: it may be a lesser kind than asked for,
	// and reason then says why.
	Kind() (kind Kind, reason string)
	// Status is why no pod can be attached now, nil if pods can.
	Status(ctx context.Context) error
	// Example is what a guest sets up, as Attachment has it, that is nobody's.
	Example() *agentv1.Network
	// Attach readies a pod's network. It may be called again for the same VM: for
	// one that was made ahead of its pod with the pod's request, and for one whose
	// shim died with a request without ports. Its listeners are the caller's.
	Attach(ctx context.Context, r Request) (Attachment, error)
	Detach(ctx context.Context, id string) error
	// Release frees what the pods share. The engine calls it when its last
	// pod is gone; the next Attach makes it anew.
	Release(ctx context.Context) error
	// Close ends what the provider does in this process, and leaves what pods share.
	Close()
}

// Attachment is one pod's place in the network.
type Attachment struct {
	// Start starts a process in the pod's network namespace, from the thread that
	// calls it: the process is in whatever else that thread is in.
	Start func(*exec.Cmd) error
	// Place tells where Start's processes are, for a process that goes there by itself.
	Place func() (Place, error)
	// Guest is what the agent sets up, nil for no interface but loopback.
	Guest *agentv1.Network
	// IPs are the pod's addresses as its status shows them.
	IPs []string
	// DNS is what the guest resolves names with.
	DNS DNS
	// Listeners are the published ports.
	Listeners []Listener
	// Tap is the VM's network card, the caller's to close, nil where it needs none.
	Tap *os.File
	// Cards are those of the pod's further interfaces, with which the VM does not start.
	Cards []Card
	// Complete, if not nil, waits until Guest, IPs, DNS and Cards are known, and sets them. A VM
	// may be started before.
	Complete func(ctx context.Context, a *Attachment) error
}

// Card is one more network card of a VM.
type Card struct {
	Guest *agentv1.Network // with its interface's name
	Tap   *os.File         // the caller's to close
}

// CloseCards closes the taps.
func CloseCards(cards []Card) error {
	var errs []error
	for _, c := range cards {
		errs = append(errs, c.Tap.Close())
	}
	return errors.Join(errs...)
}

// Place is the network namespace of a pod's processes. Its files are the caller's, who
// closes them.
type Place struct {
	// User is the user namespace that Net belongs to and that is entered before; nil
	// is the caller's own.
	User *os.File
	// Net is nil for the caller's own, or, with Alone, for a new one with nothing in it.
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

// home is where the caller itself is.
func home() (Place, error) { return Place{}, nil }

// attach gives a what all kinds of networks give: the pod's DNS over the
// network's, and the ports. Servers that the pod does not name are the network's.
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
