package view

import (
	"fmt"
	"maps"
	"slices"

	"github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/printable"
)

// foreign lists the pods of doors in other processes and of other instances from their records. Only their own door
// or engine knows their inner state.
func (s *Service) foreign() ([]api.Pod, error) {
	names, err := s.Engine.Instances()
	if err != nil {
		return nil, err
	}
	var pods []api.Pod
	for _, p := range s.Engine.Pods() {
		if door, key := p.Door(); door != "" {
			pods = append(pods, ofDoor(&p, door, key))
		}
	}
	for _, name := range names {
		records, damaged, err := s.Engine.Records(name)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			pods = append(pods, recorded(name, r))
		}
		for _, id := range slices.Sorted(maps.Keys(damaged)) {
			pods = append(pods, api.Pod{Instance: name, Sandbox: id, UID: id, Name: id[:12], Phase: "Unknown", Status: "Damaged"})
		}
	}
	return pods, nil
}

// recorded describes a pod by its engine's record.
func recorded(instance string, r engine.Record) api.Pod {
	p := api.Pod{
		Instance: instance, Sandbox: r.ID, UID: r.ID, Name: r.ID[:12], Phase: "Running", Status: r.Phase, Created: r.Created, Accel: r.Accel,
	}
	switch {
	case r.Starting:
		p.Phase = "Pending"
	case r.Ended:
		p.Phase = "Succeeded"
	}
	if c := cri.PodConfig(r.Record); c.GetMetadata().GetName() != "" {
		p.Name, p.Namespace, p.UID, p.Labels = c.GetMetadata().GetName(), c.GetMetadata().GetNamespace(), c.GetMetadata().GetUid(), c.GetLabels()
	}
	if len(r.IPs) > 0 {
		p.IP = r.IPs[0]
	}
	p.Ports = portsOf(r.Ports)
	return p
}

// ofDoor describes a pod of a door in another process.
func ofDoor(p *engine.Pod, door, key string) api.Pod {
	out := api.Pod{
		Instance: client.Instance + "/" + door, Sandbox: p.ID, UID: p.ID, Name: printable.Text(key),
		Phase: "Succeeded", Status: "stopped", Created: p.Created, Ports: portsOf(p.Ports),
	}
	if p.Ready {
		out.Phase, out.Status = "Running", "ready"
	}
	if len(p.IPs) > 0 {
		out.IP = p.IPs[0]
	}
	return out
}

// portsOf formats published ports.
func portsOf(ports []engine.Port) (out []string) {
	for _, port := range ports {
		text := fmt.Sprintf("%s:%d->%d", port.HostIP, port.HostPort, port.PodPort)
		if port.Protocol != "" {
			text += "/" + port.Protocol
		}
		out = append(out, text)
	}
	return out
}
