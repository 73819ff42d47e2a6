package cri

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/network"
)

func TestNetworkRequest(t *testing.T) {
	config := &runtimeapi.PodSandboxConfig{
		Metadata:  &runtimeapi.PodSandboxMetadata{Name: "p"},
		DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"a"}, Options: []string{"ndots:5"}},
		PortMappings: []*runtimeapi.PortMapping{{ContainerPort: 81}, {HostPort: 80, ContainerPort: 8080, HostIp: "::1"}, {
			HostPort: 53, ContainerPort: 5353, Protocol: runtimeapi.Protocol_UDP,
		}},
		Annotations: map[string]string{"kubernetes.io/ingress-bandwidth": "10M", "kubernetes.io/egress-bandwidth": "2k"},
	}
	want := engine.PodRequest{
		Ports:     []network.Port{{HostIP: "::1", HostPort: 80, PodPort: 8080, Protocol: "tcp"}, {HostPort: 53, PodPort: 5353, Protocol: "udp"}},
		DNS:       &network.DNS{Servers: []string{"192.0.2.1"}, Searches: []string{"a"}, Options: []string{"ndots:5"}},
		Bandwidth: network.Bandwidth{Ingress: 10_000_000, Egress: 2000},
	}
	var got engine.PodRequest
	err := setNetwork(&got, config)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Error(err, diff)
	}
	var nothing engine.PodRequest
	if err := setNetwork(&nothing, &runtimeapi.PodSandboxConfig{}); err != nil || !cmp.Equal(nothing, engine.PodRequest{}) {
		t.Errorf("nothing: %+v, %v", nothing, err)
	}
	odd := &runtimeapi.PodSandboxConfig{PortMappings: []*runtimeapi.PortMapping{{HostPort: 1, ContainerPort: 1, Protocol: 9}}}
	if err := setNetwork(&nothing, odd); status.Code(err) != codes.InvalidArgument {
		t.Errorf("an unknown protocol: %v", err)
	}
	for _, text := range []string{"fast", "0", "-1M"} {
		config.Annotations["kubernetes.io/ingress-bandwidth"] = text
		if err := setNetwork(&got, config); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", text, err)
		}
	}
}
