package remote

import (
	"encoding/json"
	"math"
	"path/filepath"
	"strings"

	"google.golang.org/protobuf/proto"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// Bounds of a request, in addition to enginev1.MaxRequest.
const (
	maxDoor  = 32
	maxKey   = 255
	maxPorts = 256
	// maxNumber is above every real size, quota and bandwidth, and leaves room for sums and products.
	maxNumber = math.MaxInt64 >> 8
)

// request is any request.
type request interface {
	proto.Message
	GetDoor() string
}

// podReference is a request about an existing pod.
type podReference interface {
	request
	GetId() string
}

// check refuses a request that is too large or has an invalid door name.
func check(r request) error {
	if n := proto.Size(r); n > enginev1.MaxRequest {
		return failure.Invalid("the request has %d bytes, at most %d are allowed", n, enginev1.MaxRequest)
	}
	door := r.GetDoor()
	if door == "" || len(door) > maxDoor || strings.Trim(door, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return failure.Invalid("door %.80q must be 1 to %d of a-z, 0-9 and '-'", door, maxDoor)
	}
	return nil
}

// podRequest translates a request for the engine.
func podRequest(r *enginev1.StartRequest) (engine.PodRequest, error) {
	if err := checkStart(r); err != nil {
		return engine.PodRequest{}, err
	}
	identity, bandwidth := r.GetIdentity(), r.GetBandwidth()
	out := engine.PodRequest{
		Key: engine.DoorKey(r.GetDoor(), r.GetKey()),
		Identity: engine.Identity{
			Name: identity.GetName(), Namespace: identity.GetNamespace(), UID: identity.GetUid(), Attempt: identity.GetAttempt(),
			Labels: identity.GetLabels(), Annotations: identity.GetAnnotations(),
		},
		Size:     sizeOf(r.GetSize()),
		Overhead: store.Overhead{Memory: r.GetOverhead().GetMemory(), CPU: r.GetOverhead().GetCpu()},
		Hostname: r.GetHostname(), Sysctls: r.GetSysctls(),
		Network:   network.Kind(r.GetNetwork()),
		Bandwidth: network.Bandwidth{Ingress: bandwidth.GetIngress(), Egress: bandwidth.GetEgress()},
		Accel:     hypervisor.Accel(r.GetAccelerator()), Cold: r.GetCold(), NoFork: r.GetNoFork(),
		ScratchBytes: r.GetScratchBytes(), LogDirectory: r.GetLogDirectory(), CgroupParent: r.GetCgroupParent(),
	}
	for _, p := range r.GetPorts() {
		out.Ports = append(out.Ports, network.Port{
			HostIP: p.GetHostIp(), HostPort: int(p.GetHostPort()), PodPort: int(p.GetPodPort()), Protocol: p.GetProtocol(),
		})
	}
	if d := r.GetDns(); d != nil {
		out.DNS = &network.DNS{Servers: d.GetServers(), Searches: d.GetSearches(), Options: d.GetOptions()}
	}
	if r.GetHolder() != nil {
		tap, err := heldOf(r.GetHolder(), r.GetTapFd())
		if err != nil {
			return out, err
		}
		out.Tap = &tap
	}
	if len(r.GetRecord()) == 0 {
		return out, nil
	}
	record, err := json.Marshal(r.GetRecord()) // the engine keeps JSON, but a door's record is any bytes
	out.Record = record
	return out, err
}

// checkStart refuses impossible values that the engine does not check.
func checkStart(r *enginev1.StartRequest) error {
	if r.GetKey() == "" || len(r.GetKey()) > maxKey {
		return failure.Invalid("the key has %d bytes, must have 1 to %d", len(r.GetKey()), maxKey)
	}
	if len(r.GetPorts()) > maxPorts {
		return failure.Invalid("%d ports, at most %d are allowed", len(r.GetPorts()), maxPorts)
	}
	for _, p := range r.GetPorts() {
		if p.GetPodPort() == 0 || max(p.GetPodPort(), p.GetHostPort()) > math.MaxUint16 {
			return failure.Invalid("port %d:%d is out of range", p.GetHostPort(), p.GetPodPort())
		}
	}
	size, limits, overhead := r.GetSize(), r.GetSize().GetLimits(), r.GetOverhead()
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"size.cpu_quota", size.GetCpuQuota()},
		{"size.memory_limit", size.GetMemoryLimit()},
		{"size.huge_pages", size.GetHugePages()},
		{"size.limits.memory_bytes", limits.GetMemoryBytes()},
		{"size.limits.cpu_quota", limits.GetCpuQuota()},
		{"size.limits.cpu_period", limits.GetCpuPeriod()},
		{"overhead.memory", overhead.GetMemory()},
		{"bandwidth.ingress", r.GetBandwidth().GetIngress()},
		{"bandwidth.egress", r.GetBandwidth().GetEgress()},
		{"scratch_bytes", r.GetScratchBytes()},
	} {
		if n.value < 0 || n.value > maxNumber {
			return failure.Invalid("%s is %d, must be from 0 to %d", n.name, n.value, int64(maxNumber))
		}
	}
	if max(size.GetCpuPeriod(), size.GetCpuShares()) > maxNumber {
		return failure.Invalid("size.cpu_period and size.cpu_shares must be at most %d", int64(maxNumber))
	}
	if cpu := overhead.GetCpu(); !(cpu >= 0 && cpu <= 1) { // also refuses NaN
		return failure.Invalid("overhead.cpu is %v, must be from 0 to 1", cpu)
	}
	return oci.CheckSysctls(r.GetSysctls())
}

func sizeOf(s *enginev1.Size) engine.Size {
	return engine.Size{
		Demand: sizing.Demand{
			Quota: s.GetCpuQuota(), Period: s.GetCpuPeriod(), Shares: s.GetCpuShares(),
			MemoryLimit: s.GetMemoryLimit(), HugePages: s.GetHugePages(), Unstated: s.GetUnstated(),
		},
		Limits: agentv1.PodLimits{
			MemoryBytes: s.GetLimits().GetMemoryBytes(),
			CPUQuota:    s.GetLimits().GetCpuQuota(), CPUPeriod: s.GetLimits().GetCpuPeriod(),
		},
	}
}

// message returns a pod as a door sees it.
func (s *Service) message(p *engine.Pod) *enginev1.Pod {
	_, key := p.Door()
	out := &enginev1.Pod{
		Id: p.ID, Key: key, State: enginev1.Pod_STOPPED, Ips: p.IPs, Directory: s.engine.StateDir(p.ID),
	}
	// A record written by another package counts as absent.
	_ = json.Unmarshal(p.Record, &out.Record)
	for _, port := range p.Ports {
		out.Ports = append(out.Ports, &enginev1.Port{
			HostIp: port.HostIP, HostPort: uint32(port.HostPort), PodPort: uint32(port.PodPort), Protocol: "tcp",
		})
	}
	for _, c := range p.Containers {
		container := &enginev1.Container{Id: c.ID, Key: c.Key}
		_ = json.Unmarshal(c.Record, &container.Record) // as above
		out.Containers = append(out.Containers, container)
	}
	if p.Ready {
		out.State = enginev1.Pod_READY
		out.ApiSocket = filepath.Join(out.Directory, layout.API)
		out.StreamSocket = filepath.Join(out.Directory, layout.Stream)
		out.FilesSocket = filepath.Join(out.Directory, layout.Files)
	}
	return out
}
