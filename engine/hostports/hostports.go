// Package hostports publishes the ports that a pod listens on: on the host, for a pod of the host's network, or in a
// client's network namespace.
package hostports

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/time/rate"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/network"
)

// most bounds the published ports of a pod for each protocol, because the guest reports them.
const most = 256

// UDP is the protocol of UDP ports in the records of published ports.
const UDP = "udp"

// Pod is the interface to a pod.
type Pod interface {
	// Listening waits until the ports differ from known, and returns them. The guest reports them.
	Listening(ctx context.Context, known agentv1.Listening) (agentv1.Listening, error)
	// Ports returns the published ports, and SetPorts records them.
	Ports() []store.Port
	SetPorts(ports []store.Port) error
	// Listen opens a port like network.Listen.
	Listen(ctx context.Context, p network.Port) (network.Listener, error)
	// Publish forwards connections to l, and closes l. Unpublish ends that.
	Publish(ctx context.Context, l network.Listener) error
	Unpublish(ctx context.Context, p store.Port) error
}

// Sync publishes ports until Listening fails, and returns that error. It skips and logs a port that another
// program of the host has. Each report of the guest takes a token of pace.
func Sync(ctx context.Context, p Pod, pace *rate.Limiter, log *slog.Logger) error {
	known := of(p.Ports())
	for {
		if err := pace.Wait(ctx); err != nil {
			return err
		}
		answer, err := p.Listening(ctx, agentv1.Listening{Ports: known})
		if err != nil {
			return err
		}
		now := bounded(answer.Ports)
		if err := adapt(ctx, p, now, log); err != nil {
			return err
		}
		known = now
	}
}

// bounded drops the port 0, and the ports beyond most of each protocol.
func bounded(all []agentv1.ListeningPort) []agentv1.ListeningPort {
	count := map[bool]int{}
	return slices.DeleteFunc(all, func(p agentv1.ListeningPort) bool {
		count[p.Datagrams]++
		return p.Port == 0 || count[p.Datagrams] > most
	})
}

// adapt publishes new ports and ends the publication of old ones. It records each step, so that another engine can
// continue.
func adapt(ctx context.Context, p Pod, now []agentv1.ListeningPort, log *slog.Logger) error {
	published := p.Ports()
	for _, old := range slices.Clone(published) {
		if slices.Contains(now, of([]store.Port{old})[0]) {
			continue
		}
		if err := p.Unpublish(ctx, old); err != nil {
			return fmt.Errorf("stop publishing port %d: %w", old.PodPort, err)
		}
		published = slices.DeleteFunc(published, func(p store.Port) bool { return p == old })
		if err := p.SetPorts(published); err != nil {
			return err
		}
	}
	for _, port := range now {
		entry := store.Port{HostIP: hostIP(port), HostPort: int(port.Port), PodPort: int(port.Port)}
		if port.Datagrams {
			entry.Protocol = UDP
		}
		if slices.Contains(published, entry) {
			continue
		}
		if err := publish(ctx, p, entry); err != nil {
			log.Warn("a port that a pod listens on is not published", "port", port.Port, "udp", port.Datagrams, "error", err)
			continue
		}
		published = append(published, entry)
		if err := p.SetPorts(published); err != nil {
			return err
		}
	}
	return nil
}

func publish(ctx context.Context, p Pod, port store.Port) error {
	l, err := p.Listen(ctx, network.Port(port))
	if err != nil {
		return err
	}
	return p.Publish(ctx, l)
}

// hostIP is the address for the published port: all addresses, or the loopback.
func hostIP(p agentv1.ListeningPort) string {
	if p.Loopback {
		return "127.0.0.1"
	}
	return "::"
}

// of converts published ports to the guest's form.
func of(ports []store.Port) (out []agentv1.ListeningPort) {
	for _, p := range ports {
		out = append(out, agentv1.ListeningPort{
			Port: uint16(p.PodPort), Loopback: p.HostIP == hostIP(agentv1.ListeningPort{Loopback: true}), Datagrams: p.Protocol == UDP,
		})
	}
	slices.SortFunc(out, func(a, b agentv1.ListeningPort) int { // the guest's order
		if a.Datagrams != b.Datagrams {
			return map[bool]int{false: -1, true: 1}[a.Datagrams]
		}
		return int(a.Port) - int(b.Port)
	})
	return out
}
