// Package hostports publishes on the host what a pod of the host's network listens on, for as
// long as it does.
package hostports

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/time/rate"

	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/network"
)

// most is how many ports of a pod and of a kind are published: what a guest tells of is its own
// word.
const most = 256

// Port is one that a process of the pod listens on.
type Port struct {
	Number    int
	Loopback  bool // only who is inside reaches it
	Datagrams bool // of UDP
}

// UDP is the protocol of published ports of UDP, as their records have it.
const UDP = "udp"

// Pod is the pod.
type Pod interface {
	// Listening returns the ports when they are others than known. The word is the guest's.
	Listening(ctx context.Context, known []Port) ([]Port, error)
	// Ports are those that are published, and SetPorts writes down which are.
	Ports() []store.Port
	SetPorts(ports []store.Port) error
	// Publish forwards what l accepts, which it closes; Unpublish ends that.
	Publish(ctx context.Context, l network.Listener) error
	Unpublish(ctx context.Context, p store.Port) error
}

// Follow publishes until Listening fails, whose error it returns. A port that another program
// of the host has is left out, and logged. Each word of the guest's takes a token of pace.
func Follow(ctx context.Context, p Pod, pace *rate.Limiter, log *slog.Logger) error {
	known := of(p.Ports())
	for {
		if err := pace.Wait(ctx); err != nil {
			return err
		}
		now, err := p.Listening(ctx, known)
		if err != nil {
			return err
		}
		now = slices.DeleteFunc(now, func(p Port) bool { return p.Number < 1 || p.Number > 65535 })
		now = bounded(now)
		if err := adapt(ctx, p, now, log); err != nil {
			return err
		}
		known = now
	}
}

// bounded leaves out what is beyond the most of each kind.
func bounded(all []Port) []Port {
	count := map[bool]int{}
	return slices.DeleteFunc(all, func(p Port) bool {
		count[p.Datagrams]++
		return count[p.Datagrams] > most
	})
}

// adapt publishes what is new and ends what is gone. What is published is written down after
// each step, so that another engine goes on from there.
func adapt(ctx context.Context, p Pod, now []Port, log *slog.Logger) error {
	published := p.Ports()
	for _, old := range slices.Clone(published) {
		if slices.Contains(now, of([]store.Port{old})[0]) {
			continue
		}
		if err := p.Unpublish(ctx, old); err != nil {
			return fmt.Errorf("end the publication of port %d: %w", old.PodPort, err)
		}
		published = slices.DeleteFunc(published, func(p store.Port) bool { return p == old })
		if err := p.SetPorts(published); err != nil {
			return err
		}
	}
	for _, port := range now {
		entry := store.Port{HostIP: hostIP(port), HostPort: port.Number, PodPort: port.Number}
		if port.Datagrams {
			entry.Protocol = UDP
		}
		if slices.Contains(published, entry) {
			continue
		}
		if err := publish(ctx, p, entry); err != nil {
			log.Warn("a port that a pod listens on is not published", "port", port.Number, "udp", port.Datagrams, "error", err)
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
	listeners, err := network.Listen([]network.Port{network.Port(port)})
	if err != nil {
		return err
	}
	return p.Publish(ctx, listeners[0])
}

// hostIP is where a port is published: on all addresses, or on the loopback.
func hostIP(p Port) string {
	if p.Loopback {
		return "127.0.0.1"
	}
	return "::"
}

// of are published ports as a guest tells of them.
func of(ports []store.Port) (out []Port) {
	for _, p := range ports {
		out = append(out, Port{
			Number: p.PodPort, Loopback: p.HostIP == hostIP(Port{Loopback: true}), Datagrams: p.Protocol == UDP,
		})
	}
	slices.SortFunc(out, func(a, b Port) int { // as a guest does
		if a.Datagrams != b.Datagrams {
			return map[bool]int{false: -1, true: 1}[a.Datagrams]
		}
		return a.Number - b.Number
	})
	return out
}
