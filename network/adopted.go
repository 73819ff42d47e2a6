package network

import (
	"context"
	"fmt"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// Adopted is the Provider of pods in network namespaces of clients. The client has made the VM's tap, redirects its
// interfaces to it (package network/adopt), and undoes that at the end. The guest learns of the interfaces when the VM
// runs, so its attachments have no configuration.
type Adopted struct{}

// Kind returns KindAdopted.
func (Adopted) Kind() (Kind, string) { return KindAdopted, "" }

// Status returns nil.
func (Adopted) Status(context.Context) error { return nil }

// Example returns a network with addresses for documentation (RFC 5737).
func (Adopted) Example() *agentv1.Network {
	return &agentv1.Network{Addresses: []string{"192.0.2.2/24"}, Gateways: []string{"192.0.2.1"}}
}

// Attach takes the tap from its holder, and opens the ports. The VM runs in an empty network namespace.
func (Adopted) Attach(_ context.Context, r Request) (a Attachment, err error) {
	a, err = Attachment{Start: alone, Place: nowhere, DNS: Resolver(KindAdopted)}.attach(r)
	if err != nil || r.Tap == nil {
		return a, err
	}
	if a.Tap, err = r.Tap.Take(); err != nil {
		return a, fmt.Errorf("take the VM's tap from its holder: %w", err)
	}
	return a, nil
}

// Detach does nothing: the tap ends with the VM.
func (Adopted) Detach(context.Context, string) error { return nil }

// Close does nothing.
func (Adopted) Close() {}

// Release does nothing.
func (Adopted) Release(context.Context) error { return nil }
