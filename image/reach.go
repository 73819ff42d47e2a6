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

// lookupWait bounds the look-up of a name that a registry leads to.
const lookupWait = 10 * time.Second

// reach is what a client of registries may ask: the registries that the user has named, and
// whatever else they lead to, by a redirection or as the server of tokens, but
// no address of this host or of its link, and no metadata service of a cloud, where services believe who asks.
type reach struct {
	own      []string // hosts, with their ports
	lookup   func(ctx context.Context, host string) ([]netip.Addr, error)
	mine     func() []netip.Addr // the addresses of the host's interfaces
	insecure bool                // one of own may be asked by plain HTTP, or with a certificate that nobody has signed
}

// reachOf allows the registries of these hosts.
func reachOf(insecure bool, own ...string) reach {
	return reach{own: own, insecure: insecure, mine: interfaceAddresses, lookup: func(ctx context.Context, host string) ([]netip.Addr, error) {
		return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	}}
}

// interfaceAddresses are the addresses of this host.
func interfaceAddresses() (out []netip.Addr) {
	all, _ := net.InterfaceAddrs() // without them loopback and link are still refused
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out = append(out, p.Addr().Unmap())
		}
	}
	return out
}

// newReach allows a name's registry and its mirrors. A name without a repository is a registry's.
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

// check refuses a request's address. A name may get another address before it is asked, so a registry that is not
// insecure is asked by HTTPS, and leads to HTTPS: an address of this host has no certificate for the name.
func (r reach) check(u *url.URL) error {
	if u.Scheme != "https" && !r.insecure {
		return fmt.Errorf("%w: the registry refers from HTTPS to %s at %.255q", ErrUnavailable, strings.ToUpper(u.Scheme), u.Hostname())
	}
	if slices.Contains(r.own, u.Host) {
		return nil
	}
	for _, addr := range r.addresses(u.Hostname()) {
		if neverAsked(addr) || r.isMine(addr) && !r.isLocal() {
			return fmt.Errorf("%w: the registry refers to %.255q, an address of this host, its link or its cloud", ErrUnavailable, u.Hostname())
		}
	}
	return nil
}

// isLocal tells a registry on this host, which may lead to others here. Its name says so
// and not its addresses, which whoever owns the name chooses.
func (r reach) isLocal() bool {
	for _, host := range r.own {
		name := (&url.URL{Host: host}).Hostname()
		if addr, err := netip.ParseAddr(name); name == "localhost" || err == nil && r.isMine(addr.Unmap()) {
			return true
		}
	}
	return false
}

// isMine reports whether an address is one of this host's.
func (r reach) isMine(addr netip.Addr) bool {
	return addr.IsLoopback() || slices.Contains(r.mine(), addr.WithZone(""))
}

// metadata are the addresses at which clouds tell a host its secrets, beside those of its link.
var metadata = []netip.Prefix{
	netip.MustParsePrefix("fd00:ec2::/32"),      // AWS
	netip.MustParsePrefix("fd20:ce::/32"),       // Google
	netip.MustParsePrefix("100.100.100.200/32"), // Alibaba
	netip.MustParsePrefix("168.63.129.16/32"),   // Azure
	netip.MustParsePrefix("192.0.0.192/32"),     // Oracle
}

// neverAsked reports whether no registry may lead to an address, wherever it is itself.
func neverAsked(addr netip.Addr) bool {
	return addr.IsLinkLocalUnicast() || addr.IsUnspecified() || addr.IsMulticast() || addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}) ||
		slices.ContainsFunc(metadata, func(p netip.Prefix) bool { return p.Contains(addr.WithZone("")) })
}

// translations are the prefixes of IPv6 addresses that stand for an IPv4 address, with the place of its first byte.
var translations = []struct {
	prefix netip.Prefix
	at     int
	not    byte // each byte is inverted by it
}{
	{netip.MustParsePrefix("::/96"), 12, 0},           // IPv4-compatible
	{netip.MustParsePrefix("64:ff9b::/96"), 12, 0},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, 0},  // NAT64 of a site
	{netip.MustParsePrefix("::ffff:0:0:0/96"), 12, 0}, // SIIT
	{netip.MustParsePrefix("2002::/16"), 2, 0},        // 6to4
	{netip.MustParsePrefix("2001::/32"), 12, 0xff},    // Teredo
}

// meanings are an address, and the IPv4 address that it stands for.
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

// addresses are those of a host; what has none cannot be asked either.
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
