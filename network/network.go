// Package network connects pods: the namespace that a pod's machine runs in,
// the addresses that its guest takes, and the ports that it publishes.
package network

import (
	"context"
	"net"
	"os/exec"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Provider attaches pods to one kind of network. Its methods may be called at
// once for different pods; Detach is idempotent and works in another process
// than Attach's, from what lies on disk.
type Provider interface {
	// Kind is what the machine's network device is made for: it may be a
	// lesser kind than asked for, and Reason then says why.
	Kind() (kind hypervisor.Network, reason string)
	// Attach readies the network of the pod named id.
	Attach(ctx context.Context, id string) (Attachment, error)
	Detach(ctx context.Context, id string) error
	// Release frees what the pods share. The engine calls it when its last
	// pod is gone; the next Attach makes it anew.
	Release(ctx context.Context) error
}

// Attachment is one pod's place in the network.
type Attachment struct {
	// Start starts a process in the pod's network namespace, from the thread that
	// calls it: the process is in whatever else that thread is in.
	Start func(*exec.Cmd) error
	// Guest is what the agent sets up, nil for no interface but loopback.
	Guest *agentv1.Network
	// IPs are the pod's addresses as its status shows them.
	IPs []string
	// Nameservers are what the guest resolves names with, when the pod's own
	// DNS configuration names none.
	Nameservers, Searches, Options []string
}

// Port is a port of the pod that is published on the host.
type Port struct {
	HostIP   string // empty means 127.0.0.1
	HostPort int    // 0 lets the kernel choose
	PodPort  int
	Protocol string // "tcp"; others are refused
}

// Listener is an open published port.
type Listener struct {
	Port
	net.Listener
}
