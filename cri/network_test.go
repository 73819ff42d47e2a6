package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
)

// Each kind of network has a device, and a VM tells which it was asked for with.
func TestNetworkDevices(t *testing.T) {
	for kind, want := range map[network.Kind]network.Kind{
		network.KindNone: network.KindNone, network.KindUser: network.KindUser,
		network.KindHostLoopback: network.KindHostLoopback, network.KindRestricted: network.KindUser,
	} {
		m := hypervisor.Machine{
			Kernel: "k", Initrd: "i", Accel: hypervisor.TCG, VCPUs: 1, Memory: 256, MaxMem: 256, Network: deviceOf(kind),
		}
		if err := m.Validate(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if got := networkOf(m); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
}

func TestNetworkRequest(t *testing.T) {
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "p"},
		DnsConfig:    &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"a"}, Options: []string{"ndots:5"}},
		PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 81}, {HostPort: 80, ContainerPort: 8080, HostIp: "::1"}},
		Annotations:  map[string]string{"kubernetes.io/ingress-bandwidth": "10M", "kubernetes.io/egress-bandwidth": "2k"},
	}
	want := network.Request{
		Ports:     []network.Port{{HostIP: "::1", HostPort: 80, PodPort: 8080, Protocol: "tcp"}},
		DNS:       &network.DNS{Servers: []string{"192.0.2.1"}, Searches: []string{"a"}, Options: []string{"ndots:5"}},
		Bandwidth: network.Bandwidth{Ingress: 10_000_000, Egress: 2000},
	}
	got, err := networkRequest(config)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if got, err := networkRequest(&runtimeapi.PodSandboxConfig{}); err != nil || !cmp.Equal(got, network.Request{}) {
		t.Errorf("nothing: %+v, %v", got, err)
	}
	for _, text := range []string{"fast", "0", "-1M"} {
		config.Annotations["kubernetes.io/ingress-bandwidth"] = text
		if _, err := networkRequest(config); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", text, err)
		}
	}
}
