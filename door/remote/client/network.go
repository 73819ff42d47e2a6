package client

import (
	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
)

// Interfaces returns interfaces for UpdateNetwork, by the numbers of their cards, as package network/adopt reads them.
// A nil one is left out.
func Interfaces(all []*agentv1.Network) (out []*enginev1.Interface) {
	for number, n := range all {
		if n == nil {
			continue
		}
		i := &enginev1.Interface{Card: uint32(number), Name: n.Name, Mac: n.MAC, Mtu: uint32(n.MTU), Addresses: n.Addresses}
		for _, r := range n.Routes {
			i.Routes = append(i.Routes, &enginev1.Route{Destination: r.Destination, Gateway: r.Gateway, Metric: uint32(r.Metric)})
		}
		for _, b := range n.Neighbours {
			i.Neighbours = append(i.Neighbours, &enginev1.Neighbour{Address: b.Address, Mac: b.MAC})
		}
		out = append(out, i)
	}
	return out
}
