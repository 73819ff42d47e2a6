package network

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Host is the Provider of pods that share the host's network. Their packets leave by the host's own stack; its loopback
// is 10.0.2.2. Their addresses are the host's, and not reported. The engine publishes the ports that they listen on.
type Host struct{}

// Kind returns KindHost.
func (Host) Kind() (Kind, string) { return KindHost, "" }

// Status returns nil.
func (Host) Status(context.Context) error { return nil }

// Example returns the network of all guests, except for their hardware addresses.
func (Host) Example() *agentv1.Network { return (*User)(nil).Example() }

// Attach keeps nothing. Name servers on the host's loopback are reached through QEMU.
func (h Host) Attach(_ context.Context, r Request) (Attachment, error) {
	a := Attachment{Start: (*exec.Cmd).Start, Place: home, Guest: h.Example(), DNS: Resolver(KindHost)}
	a, err := a.attach(r)
	a.DNS.Servers = slices.Clone(a.DNS.Servers) // the pod's servers belong to the caller
	for i, server := range a.DNS.Servers {
		if at, err := netip.ParseAddr(server); err == nil && at.IsLoopback() {
			a.DNS.Servers[i] = userDNS
		}
	}
	if len(a.DNS.Servers) == 0 {
		a.DNS.Servers = []string{userDNS} // QEMU answers that there is none
	}
	return a, err
}

// Detach does nothing.
func (Host) Detach(context.Context, string) error { return nil }

// Close does nothing.
func (Host) Close() {}

// Release does nothing.
func (Host) Release(context.Context) error { return nil }
