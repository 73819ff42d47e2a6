package network

import (
	"bufio"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
)

// resolvConfs are the files with the host's name servers, in the order of the tries. The second is systemd-resolved's
// own list. It is used if the first has only the stub on the loopback, which no pod can reach.
var resolvConfs = []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"}

// Resolver returns the resolver configuration of pods in a network of that kind that have none of their own. It is
// empty for pods without a network. If pods cannot reach the host's name servers, the host answers in their place, for
// the kinds where it can. Pods of the host's network get the host's file unchanged, including servers on its loopback.
func Resolver(kind Kind) DNS {
	switch kind {
	case KindNone:
		return DNS{}
	case KindHost:
		dns, _ := readResolv(resolvConfs[0])
		return dns
	}
	dns := hostResolver(kind)
	switch {
	case len(dns.Servers) > 0 || kind.ownNamespace(): // the host does not answer there
	case kind == KindHostLoopback:
		dns.Servers = []string{userDNS, hostDNS} // the second for pods with a namespace after all
	default:
		dns.Servers = []string{hostDNS}
	}
	return dns
}

// hostResolver returns the host's configuration, with only the name servers that a pod can reach.
func hostResolver(kind Kind) DNS {
	var dns DNS
	for _, path := range resolvConfs {
		read, err := readResolv(path)
		if err != nil {
			continue // a host without this file
		}
		dns = read
		if dns.Servers = reachable(kind, dns.Servers); len(dns.Servers) > 0 {
			break
		}
	}
	return dns
}

// ownNamespace reports whether each pod of that kind has a network namespace of its own, made by other programs.
func (k Kind) ownNamespace() bool { return k == KindCNI || k == KindAdopted }

// reachable removes the servers that are closed to pods. A pod's own namespace closes only the loopback. The others close
// the host's addresses, and carry no IPv6.
func reachable(kind Kind, servers []string) []string {
	own, err := hostAddresses()
	return slices.DeleteFunc(servers, func(server string) bool {
		at := netip.MustParseAddr(server)
		switch {
		case at.IsLoopback():
			return true
		case kind.ownNamespace():
			return false
		}
		return err != nil || !at.Is4() || slices.Contains(own, server) || isNeverReached(at)
	})
}

func readResolv(path string) (DNS, error) {
	f, err := os.Open(path)
	if err != nil {
		return DNS{}, err
	}
	defer f.Close()
	return parseResolv(f), nil
}

// parseResolv reads the format of resolv.conf(5). It skips scoped addresses and trims the dots at the ends of domains.
func parseResolv(r io.Reader) (dns DNS) {
	s := bufio.NewScanner(io.LimitReader(r, 64<<10))
	for s.Scan() {
		fields := strings.Fields(s.Text())
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if a, err := netip.ParseAddr(fields[1]); err == nil && a.Zone() == "" {
				dns.Servers = append(dns.Servers, a.String())
			}
		case "search", "domain":
			dns.Searches = nil
			for _, domain := range fields[1:] {
				if domain = strings.TrimSuffix(domain, "."); domain != "" {
					dns.Searches = append(dns.Searches, domain)
				}
			}
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	return dns
}
