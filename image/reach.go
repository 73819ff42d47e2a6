package image

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

// lookupWait bounds the look-up of a name that a registry leads to.
const lookupWait = 10 * time.Second

// reach is what a pull may ask: the registries that its image is known by, and
// whatever else they lead to, by a redirection or as the server of tokens, but
// no address of this host or of its link, where services believe who asks.
type reach struct {
	own    []string // hosts, with their ports
	lookup func(ctx context.Context, host string) ([]netip.Addr, error)
}

// newReach allows a name's registry and its mirrors.
func newReach(sys *types.SystemContext, named reference.Named) (reach, error) {
	r := reach{own: []string{reference.Domain(named)}, lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}}
	registry, err := sysregistriesv2.FindRegistry(sys, named.String())
	if err != nil || registry == nil {
		return r, err
	}
	sources, err := registry.PullSourcesFromReference(named)
	for _, source := range sources {
		r.own = append(r.own, reference.Domain(source.Reference))
	}
	return r, err
}

// check refuses a request's address. What a name means may change until it is
// asked: this is no wall against who answers for the host's DNS.
func (r reach) check(u *url.URL) error {
	for _, host := range r.own {
		if u.Host == host {
			return nil
		}
	}
	for _, addr := range r.addresses(u.Hostname()) {
		if addr.IsLinkLocalUnicast() || addr.IsUnspecified() || addr.IsLoopback() && !r.isLocal() {
			return fmt.Errorf("%w: it leads to %.255q, an address of this host or its link", ErrUnavailable, u.Hostname())
		}
	}
	return nil
}

// isLocal tells a registry on this host, which may lead to others here. Its name says so
// and not its addresses, which whoever owns the name chooses.
func (r reach) isLocal() bool {
	for _, host := range r.own {
		name := (&url.URL{Host: host}).Hostname()
		if addr, err := netip.ParseAddr(name); name == "localhost" || err == nil && addr.IsLoopback() {
			return true
		}
	}
	return false
}

// addresses are those of a host; what has none cannot be asked either.
func (r reach) addresses(host string) (out []netip.Addr) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupWait)
	defer cancel()
	found, err := r.lookup(ctx, host)
	if err != nil {
		return nil
	}
	for _, addr := range found {
		out = append(out, addr.Unmap())
	}
	return out
}

// limit puts the check before every request that goes to no proxy, whose
// network is another.
func (r reach) limit(sys *types.SystemContext) {
	proxy := sys.DockerProxy
	sys.DockerProxy = func(u *url.URL) (*url.URL, error) {
		via, err := proxy(u)
		if err == nil && via == nil {
			err = r.check(u)
		}
		return via, err
	}
}
