package network

import (
	"context"
	"os/exec"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/pace"
)

// The addresses of QEMU's user network. Every guest has the same, and a user network of its own.
const (
	userAddress = "10.0.2.15/24"
	userGateway = "10.0.2.2"
	userDNS     = "10.0.2.3"
)

// hostDNS is the address where pasta answers for the host's own resolver, on UDP port 53 alone, if pods can reach none
// of the host's name servers. No host has this address (RFC 6890, for protocols).
const hostDNS = "192.0.0.53"

// attachTimeout bounds the creation of the shared namespace.
const attachTimeout = 10 * time.Second

// attaching returns a context with attachTimeout, adjusted to this host.
func attaching(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, pace.Stretch(attachTimeout))
}

// User is the Provider of the network that needs no privilege. Each VM has QEMU's user network. All VMs of an instance
// run in one network namespace, which pasta connects to the outside. The namespace's loopback is down, so that neither
// the host's loopback nor another pod can be reached through it.
//
// If such a namespace cannot be created, VMs run with restrict=on: no traffic leaves the guest. Published ports still
// work, since they use the channel.
type User struct {
	ns     *namespace
	kind   Kind
	reason string
}

// NewUser checks the user's permissions and returns the best possible network. dir holds the shared namespace's record.
// It must exist, and belongs to the caller. With hostLoopback, and without a namespace, VMs run in the host's namespace
// and can reach its loopback: only for callers that asked for it.
func NewUser(ctx context.Context, dir string, hostLoopback bool) *User {
	u := &User{ns: &namespace{dir: dir}, kind: KindUser}
	ctx, cancel := attaching(ctx)
	defer cancel()
	_, err := u.ns.ensure(ctx)
	if err != nil {
		u.ns.unwatch() // no pod uses it
	}
	switch {
	case err == nil:
	case hostLoopback:
		u.ns, u.kind, u.reason = nil, KindHostLoopback, "the pod can reach the host's loopback, as requested: "+err.Error()
	default:
		u.ns, u.kind, u.reason = nil, KindRestricted, "no traffic leaves the pod: "+err.Error()
	}
	return u
}

// Kind returns KindUser, or KindRestricted or KindHostLoopback with the reason.
func (u *User) Kind() (Kind, string) { return u.kind, u.reason }

// Status returns nil: there is always a kind.
func (u *User) Status(context.Context) error { return nil }

// Example returns the network of all guests, except for their hardware addresses.
func (u *User) Example() *agentv1.Network {
	return &agentv1.Network{Addresses: []string{userAddress}, Gateways: []string{userGateway}}
}

// Attach makes sure that the shared namespace exists, and opens the ports.
func (u *User) Attach(ctx context.Context, r Request) (Attachment, error) {
	a := Attachment{
		Start: (*exec.Cmd).Start, Place: home,
		Guest: u.Example(), IPs: []string{"10.0.2.15"},
	}
	a.DNS = Resolver(KindUser)
	if u.kind == KindRestricted {
		a.Start, a.Place = alone, nowhere // no packet leaves the guest anyway
	}
	if u.ns == nil {
		return a.attach(r)
	}
	ctx, cancel := attaching(ctx)
	defer cancel()
	rec, err := u.ns.ensure(ctx)
	if err != nil {
		return Attachment{}, err
	}
	a.Start, a.Place = rec.start, rec.place
	return a.attach(r)
}

// Detach does nothing: a pod has nothing of its own in the namespace.
func (u *User) Detach(context.Context, string) error { return nil }

// Close keeps the shared namespace. The host's addresses are not watched any more, until the next Attach.
func (u *User) Close() {
	if u.ns != nil {
		u.ns.unwatch()
	}
}

// RemoveShared removes the shared namespace with a record in dir, if there is one. The process of its User must have
// ended.
func RemoveShared(ctx context.Context, dir string) error { return (&namespace{dir: dir}).release(ctx) }

// Release removes the shared namespace.
func (u *User) Release(ctx context.Context) error {
	if u.ns == nil {
		return nil
	}
	return u.ns.release(ctx)
}
