package image

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"
)

// lookupWait bounds the look-up of a name that a registry refers to.
const lookupWait = 10 * time.Second

// reach limits the addresses of a client of registries. It may contact the user's registries and the hosts that they
// refer to, by a redirection or as the server of tokens. It must not contact an address of this host or of its link, or
// a cloud's metadata service: services there trust their clients.
type reach struct {
	own      []string // hosts, with their ports
	lookup   func(ctx context.Context, host string) ([]netip.Addr, error)
	mine     func() []netip.Addr // the addresses of the host's interfaces
	insecure bool                // plain HTTP and untrusted certificates are allowed for one of own
}

// reachOf allows the registries of these hosts.
func reachOf(insecure bool, own ...string) reach {
	return reach{own: own, insecure: insecure, mine: interfaceAddresses, lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}}
}

// interfaceAddresses returns the addresses of this host.
func interfaceAddresses() (out []netip.Addr) {
	all, _ := net.InterfaceAddrs() // without them loopback and link are still refused
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// newReach allows a name's registry and its mirrors. A name without a repository is a registry.
func newReach(sys *types.SystemContext, name string) (reach, error) {
	host, repository, _ := strings.Cut(name, "/")
	r := reachOf(sys.DockerInsecureSkipTLSVerify == types.OptionalBoolTrue, host)
	registry, err := sysregistriesv2.FindRegistry(sys, name)
	if err != nil || registry == nil {
		return r, err
	}
	r.insecure = r.insecure || registry.Insecure
	if repository == "" {
		return r, nil
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return r, err
	}
	sources, err := registry.PullSourcesFromReference(named)
	for _, source := range sources {
		r.own = append(r.own, reference.Domain(source.Reference))
		r.insecure = r.insecure || source.Endpoint.Insecure
	}
	return r, err
}

// check refuses a request's address. A name may get another address between check and request. So a registry that is
// not insecure needs HTTPS, and may only refer to HTTPS: an address of this host has no certificate for the name.
func (r reach) check(u *url.URL) error {
	if u.Scheme != "https" && !r.insecure {
		return fmt.Errorf("%w: the registry refers from HTTPS to %s at %.255q", ErrUnavailable, strings.ToUpper(u.Scheme), u.Hostname())
	}
	if slices.Contains(r.own, u.Host) {
		return nil
	}
	for _, addr := range r.addresses(u.Hostname()) {
		if neverAsked(addr) || r.isOwn(addr) && !r.isLocal() {
			return fmt.Errorf("%w: the registry refers to %.255q, an address of this host, its link or its cloud", ErrUnavailable, u.Hostname())
		}
	}
	return nil
}

// isLocal reports whether a registry is on this host: such a registry may refer to others here. The name decides and
// not its addresses, since the owner of a name chooses those.
func (r reach) isLocal() bool {
	for _, host := range r.own {
		name := (&url.URL{Host: host}).Hostname()
		if addr, err := netip.ParseAddr(name); name == "localhost" || err == nil && r.isOwn(addr.Unmap()) {
			return true
		}
	}
	return false
}

// isOwn reports whether an address is one of this host's.
func (r reach) isOwn(addr netip.Addr) bool {
	return addr.IsLoopback() || slices.Contains(r.mine(), addr.WithZone(""))
}

// metadata are the addresses of clouds' metadata services, with secrets of the host, that are not link-local.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::/32"),       // Google
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
}

// neverAsked reports whether no registry may refer to an address, not even a local one.
func neverAsked(addr netip.Addr) bool {
	return addr.IsLinkLocalUnicast() || addr.IsUnspecified() || addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) ||
		slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(addr.WithZone("")) })
}

// translations are the prefixes of IPv6 addresses that stand for an IPv4 address, with the index of its first byte.
var translations = []struct {
	prefix netip.Prefix
	at     int
	not    byte // each byte is XORed with it
}{
	{netip.MustParsePrefix("::/96"), 12, 0},           // IPv4-compatible
	{netip.MustParsePrefix("64:ff9b::/96"), 12, 0},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, 0},  // NAT64 of a site
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, 0}, // SIIT
	{netip.MustParsePrefix("2002::/16"), 2, 0},        // 6to4
	{netip.MustParsePrefix("2001::/32"), 12, 0xff},    // Teredo
}

// meanings returns an address, and the IPv4 address that it stands for.
func meanings(addr netip.Addr) []netip.Addr {
	addr = addr.Unmap()
	out := []netip.Addr{addr}
	for _, t := range translations {
		if !t.prefix.Contains(addr.WithZone("")) {
			continue
		}
		var four [4]byte
		bytes := addr.As16()
		for i := range four {
			four[i] = bytes[t.at+i] ^ t.not
		}
		out = append(out, netip.AddrFrom4(four))
	}
	return out
}

// addresses returns a host's addresses, none if the look-up fails: the host cannot be contacted then.
func (r reach) addresses(host string) (out []netip.Addr) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupWait)
	defer cancel()
	found, err := r.lookup(ctx, host)
	if err != nil {
		return nil
	}
	for _, addr := range found {
		out = append(out, meanings(addr)...)
	}
	return out
}

// limit checks every request that does not go to a proxy. A proxy is in another network.
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
