package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/bulkhead-project/bulkhead/internal/procid"
)

// neverReached are the destinations that are closed to pods on every host: the loopback, the link-local addresses
// (cloud metadata, other hosts' fallbacks) and multicast, which the host's own services receive too.
var neverReached = []netip.Prefix{
	netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("224.0.0.0/4"),
}

func isNeverReached(a netip.Addr) bool {
	return slices.ContainsFunc(neverReached, func(p netip.Prefix) bool { return p.Contains(a) })
}

// hostAddresses returns this host's IPv4 addresses that neverReached does not cover, sorted. pasta carries no IPv6.
func hostAddresses() ([]string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the host's addresses: %w", err)
	}
	var out []string
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue // no interface has an address without a prefix
		}
		at := prefix.Addr().Unmap()
		if at.Is4() && !isNeverReached(at) {
			out = append(out, at.String())
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// closeAddresses makes the host's addresses unreachable in the holder's namespace. The addresses in closed are
// unreachable already; those that the host has lost are opened. It returns the addresses that are closed now.
func closeAddresses(ctx context.Context, holder procid.ID, closed []string) ([]string, error) {
	want, err := hostAddresses()
	if err != nil {
		return closed, err
	}
	var commands []string
	if closed == nil {
		for _, prefix := range neverReached {
			commands = append(commands, "route replace unreachable "+prefix.String())
		}
	}
	for _, address := range want {
		if !slices.Contains(closed, address) {
			commands = append(commands, "route replace unreachable "+address)
		}
	}
	if len(commands) > 0 {
		if err := askHolder(ctx, holder, commands...); err != nil {
			return closed, fmt.Errorf("close the host's addresses to pods: %w", err)
		}
	}
	commands = nil
	for _, address := range closed {
		if !slices.Contains(want, address) {
			// The route may be missing: a killed engine may have deleted it already.
			commands = append(commands, "route replace unreachable "+address, "route del unreachable "+address)
		}
	}
	if len(commands) > 0 {
		if err := askHolder(ctx, holder, commands...); err != nil {
			return closed, fmt.Errorf("open addresses that the host has lost: %w", err)
		}
	}
	return want, nil
}
