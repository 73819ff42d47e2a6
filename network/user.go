package network

import (
	"context"
	"os/exec"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/internal/pace"
)

// QEMU's user network gives every guest these addresses; guests do not share
// them, since each has a user network of its own.
const (
	userAddress = "10.0.2.15/24"
	userGateway = "10.0.2.2"
	userDNS     = "10.0.2.3"
)

// hostDNS is where pasta answers for the host's own resolver, on UDP port 53
// alone, where pods can reach none of the host's name servers. The address is
// nobody's (RFC 6890, for protocols).
const hostDNS = "192.0.0.53"

// attachTimeout bounds the making of the shared namespace.
const attachTimeout = 10 * time.Second

// attaching is a context that the making has to end in, on this host.
func attaching(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, pace.Stretch(attachTimeout))
}

// User is the Provider of the network that needs no privilege. Each machine has
// QEMU's user network; all of an instance's machines run in one network
// namespace that pasta connects to the outside. The namespace's loopback is
// down, so that neither the host's loopback nor another pod can be reached
// through it.
//
// Where such a namespace cannot be made, the machines run with restrict=on:
// nothing leaves the guest, and published ports still work, for they go over
// the channel.
type User struct {
	ns     *namespace
	kind   Kind
	reason string
}

// NewUser probes what this user may do and returns the best network there is.
// dir keeps the shared namespace's record; it exists and belongs to the
// caller. With hostLoopback, and where there is no namespace, machines run in
// the host's namespace with the hole that this leaves: only for who asked.
func NewUser(ctx context.Context, dir string, hostLoopback bool) *User {
	u := &User{ns: &namespace{dir: dir}, kind: KindUser}
	ctx, cancel := attaching(ctx)
	defer cancel()
	_, err := u.ns.ensure(ctx)
	if err != nil {
		u.ns.unwatch() // nobody has it any more
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

// Kind is KindUser, or KindRestricted or KindHostLoopback with the reason.
func (u *User) Kind() (Kind, string) { return u.kind, u.reason }

// Status is nil: there is always a kind.
func (u *User) Status(context.Context) error { return nil }

// Example is what all guests have but for their hardware addresses.
func (u *User) Example() *agentv1.Network {
	return &agentv1.Network{Addresses: []string{userAddress}, Gateways: []string{userGateway}}
}

// Attach makes sure that the shared namespace is there, and opens the ports.
func (u *User) Attach(ctx context.Context, r Request) (Attachment, error) {
	a := Attachment{
		Start: (*exec.Cmd).Start, Place: home,
		Guest: u.Example(), IPs: []string{"10.0.2.15"},
	}
	a.DNS = Resolver(KindUser)
	if u.kind == KindRestricted {
		a.Start, a.Place = alone, nowhere // what leaves the guest goes nowhere anyway
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

// Detach does nothing: a pod keeps nothing of its own in the namespace.
func (u *User) Detach(context.Context, string) error { return nil }

// Close leaves the shared namespace as it is: the host's addresses are not watched
// any more, until the next Attach.
func (u *User) Close() {
	if u.ns != nil {
		u.ns.unwatch()
	}
}

// End ends the shared namespace whose record lies in dir, if there is one: its User's process is no more.
func End(ctx context.Context, dir string) error { return (&namespace{dir: dir}).release(ctx) }

// Release ends the shared namespace.
func (u *User) Release(ctx context.Context) error {
	if u.ns == nil {
		return nil
	}
	return u.ns.release(ctx)
}
