package remote

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	enginev1 "github.com/bulkhead-project/bulkhead/api/engine/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/network"
	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// TestPodRequest: every field of a request reaches the engine.
func TestPodRequest(t *testing.T) {
	t.Parallel()
	got, err := podRequest(&enginev1.StartRequest{
		Door: "oci", Key: "c/1", Record: []byte("a\x00b"),
		Identity: &enginev1.Identity{
			Name: "n", Namespace: "ns", Uid: "u", Attempt: 3,
			Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"},
		},
		Size: &enginev1.Size{
			CpuQuota: 1, CpuPeriod: 2, CpuShares: 3, MemoryLimit: 4, HugePages: 5, Unstated: true,
			Limits: &enginev1.Limits{MemoryBytes: 6, CpuQuota: 7, CpuPeriod: 8},
		},
		Overhead: &enginev1.Overhead{Memory: 9, Cpu: 0.5},
		Hostname: "h", Sysctls: map[string]string{"net.core.somaxconn": "10"},
		Network: "none", Ports: []*enginev1.Port{{HostIp: "127.0.0.2", HostPort: 11, PodPort: 12, Protocol: "tcp"}},
		Dns:       &enginev1.DNS{Servers: []string{"10.0.0.1"}, Searches: []string{"s"}, Options: []string{"o"}},
		Bandwidth: &enginev1.Bandwidth{Ingress: 13, Egress: 14}, Accelerator: "tcg", Cold: true, ScratchBytes: 15, LogDirectory: "/l",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := engine.PodRequest{
		Key: "door:oci/c/1", Record: []byte(`"YQBi"`),
		Identity: engine.Identity{
			Name: "n", Namespace: "ns", UID: "u", Attempt: 3,
			Labels: map[string]string{"l": "1"}, Annotations: map[string]string{"a": "2"},
		},
		Size: engine.Size{
			Demand: sizing.Demand{Quota: 1, Period: 2, Shares: 3, MemoryLimit: 4, HugePages: 5, Unstated: true},
			Limits: agentv1.PodLimits{MemoryBytes: 6, CPUQuota: 7, CPUPeriod: 8},
		},
		Overhead: store.Overhead{Memory: 9, CPU: 0.5},
		Hostname: "h", Sysctls: map[string]string{"net.core.somaxconn": "10"},
		Network: network.KindNone, Ports: []network.Port{{HostIP: "127.0.0.2", HostPort: 11, PodPort: 12, Protocol: "tcp"}},
		DNS:       &network.DNS{Servers: []string{"10.0.0.1"}, Searches: []string{"s"}, Options: []string{"o"}},
		Bandwidth: network.Bandwidth{Ingress: 13, Egress: 14}, Accel: hypervisor.TCG, Cold: true, ScratchBytes: 15, LogDirectory: "/l",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	least, err := podRequest(&enginev1.StartRequest{Door: "oci", Key: "k"})
	if diff := cmp.Diff(engine.PodRequest{Key: "door:oci/k"}, least); diff != "" || err != nil {
		t.Error(err, diff)
	}
}

// TestRefused: an impossible request does not reach the engine.
func TestRefused(t *testing.T) {
	t.Parallel()
	start := func(change func(*enginev1.StartRequest)) *enginev1.StartRequest {
		r := &enginev1.StartRequest{Door: "oci", Key: "k"}
		change(r)
		return r
	}
	port := func(host, pod uint32) *enginev1.StartRequest {
		return start(func(r *enginev1.StartRequest) { r.Ports = []*enginev1.Port{{HostPort: host, PodPort: pod}} })
	}
	size := func(s *enginev1.Size) *enginev1.StartRequest {
		return start(func(r *enginev1.StartRequest) { r.Size = s })
	}
	for _, tc := range []struct {
		name string
		r    *enginev1.StartRequest
		says string
		code codes.Code // 0 means InvalidArgument
	}{
		{name: "no door", r: start(func(r *enginev1.StartRequest) { r.Door = "" }), says: "door"},
		{name: "a door with a slash", r: start(func(r *enginev1.StartRequest) { r.Door = "a/b" }), says: "door"},
		{name: "a long door", r: start(func(r *enginev1.StartRequest) { r.Door = strings.Repeat("a", 33) }), says: "door"},
		{name: "no key", r: start(func(r *enginev1.StartRequest) { r.Key = "" }), says: "key"},
		{name: "a long key", r: start(func(r *enginev1.StartRequest) { r.Key = strings.Repeat("k", 256) }), says: "key"},
		{name: "too large", r: start(func(r *enginev1.StartRequest) { r.Record = make([]byte, enginev1.MaxRequest) }), says: "bytes"},
		{name: "pod port 0", r: port(1, 0), says: "port"},
		{name: "host port 65536", r: port(65536, 1), says: "port"},
		{name: "many ports", r: start(func(r *enginev1.StartRequest) { r.Ports = make([]*enginev1.Port, 257) }), says: "ports"},
		{name: "negative memory", r: size(&enginev1.Size{MemoryLimit: -1}), says: "size.memory_limit"},
		{name: "huge pages that overflow", r: size(&enginev1.Size{HugePages: math.MaxInt64}), says: "size.huge_pages"},
		{name: "a period that overflows", r: size(&enginev1.Size{CpuPeriod: math.MaxUint64}), says: "size.cpu_period"},
		{name: "a negative disk", r: start(func(r *enginev1.StartRequest) { r.ScratchBytes = -1 }), says: "scratch_bytes"},
		{
			name: "an overhead that is not a number", says: "overhead.cpu",
			r: start(func(r *enginev1.StartRequest) { r.Overhead = &enginev1.Overhead{Cpu: math.NaN()} }),
		},
		{
			name: "a sysctl of the guest's kernel", says: "kernel.core_pattern", code: codes.Unimplemented,
			r: start(func(r *enginev1.StartRequest) { r.Sysctls = map[string]string{"kernel.core_pattern": "|/x"} }),
		},
	} {
		if tc.code == codes.OK {
			tc.code = codes.InvalidArgument
		}
		err := check(tc.r)
		if err == nil {
			_, err = podRequest(tc.r)
		}
		if grpccode.Of(err) != tc.code || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v: %v", tc.name, grpccode.Of(err), err)
		}
	}
}
