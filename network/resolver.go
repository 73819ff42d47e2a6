package network

import (
	"bufio"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// resolvConfs are the files that tell the host's name servers, in the order
// they are tried: systemd-resolved's own list is used when the first names
// only its stub on the loopback, which no pod can reach.
var resolvConfs = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// Resolver is how pods in a network of that kind resolve names, where their own
// configuration says nothing else; nothing for those without a network. Where
// the host's name servers are out of pods' reach, the host is asked for them.
func Resolver(kind Kind) DNS {
	if kind == KindNone {
		return DNS{}
	}
	dns := hostResolver()
	switch {
	case len(dns.Servers) > 0:
	case kind == KindHostLoopback:
		dns.Servers = []string{userDNS, hostDNS} // the second where there is a namespace after all
	default:
		dns.Servers = []string{hostDNS}
	}
	return dns
}

// hostResolver is the host's configuration with the name servers that a pod can
// reach.
func hostResolver() DNS {
	var dns DNS
	for _, path := range resolvConfs {
		f, err := os.Open(path)
		if err != nil {
			continue // a host without this file
		}
		dns = parseResolv(f)
		f.Close()
		if dns.Servers = reachable(dns.Servers); len(dns.Servers) > 0 {
			break
		}
	}
	return dns
}

// reachable leaves out the servers that are closed to pods.
func reachable(servers []string) []string {
	own, err := hostAddresses()
	return slices.DeleteFunc(servers, func(server string) bool {
		return err != nil || slices.Contains(own, server) || isNeverReached(netip.MustParseAddr(server))
	})
}

// parseResolv reads the format of resolv.conf(5). Servers on a loopback
// address and scoped addresses are left out.
func parseResolv(r io.Reader) (dns DNS) {
	s := bufio.NewScanner(io.LimitReader(r, 64<<10))
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(fields[1]); err == nil && !a.IsLoopback() && a.Zone() == "" && a.Is4() {
				dns.Servers = append(dns.Servers, a.String())
			}
		case "search", "domain":
			dns.Searches = fields[1:]
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	return dns
}
