package network

import (
	"context"
	"net/netip"
	"os/exec"
	"slices"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Host is the Provider of pods that share the host's network: what their guests send leaves by
// the host's own stack, its loopback at 10.0.2.2. Their addresses are the host's, and not told.
// What they listen on, the engine publishes.
type Host struct{}

// Kind is KindHost.
func (Host) Kind() (Kind, string) { return KindHost, "" }

// Status is always nil.
func (Host) Status(context.Context) error { return nil }

// Example is what all guests have but for their hardware addresses.
func (Host) Example() *agentv1.Network { return (*User)(nil).Example() }

// Attach keeps nothing. Name servers on the host's loopback are asked by way of QEMU.
func (h Host) Attach(_ context.Context, r Request) (Attachment, error) {
	a := Attachment{Start: (*exec.Cmd).Start, Place: home, Guest: h.Example(), DNS: Resolver(KindHost)}
	a, err := a.attach(r)
	a.DNS.Servers = slices.Clone(a.DNS.Servers) // the pod's are the caller's
	for i, server := range a.DNS.Servers {
		if at, err := netip.ParseAddr(server); err == nil && at.IsLoopback() {
			a.DNS.Servers[i] = userDNS
		}
	}
	if len(a.DNS.Servers) == 0 {
		a.DNS.Servers = []string{userDNS} // which says that there is none
	}
	return a, err
}

// Detach does nothing.
func (Host) Detach(context.Context, string) error { return nil }

// Close does nothing.
func (Host) Close() {}

// Release does nothing.
func (Host) Release(context.Context) error { return nil }
