package cri

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/failure"
	"github.com/bulkhead-project/bulkhead/network"
)

// setNetwork sets the pod's network options.
func setNetwork(r *engine.PodRequest, config *runtimeapi.PodSandboxConfig) (err error) {
	if r.Ports, err = ports(config.GetPortMappings()); err != nil {
		return err
	}
	if dns := config.GetDnsConfig(); dns != nil {
		r.DNS = &network.DNS{Servers: dns.GetServers(), Searches: dns.GetSearches(), Options: dns.GetOptions()}
	}
	for key, limit := range map[string]*int64{
		"kubernetes.io/ingress-bandwidth": &r.Bandwidth.Ingress, "kubernetes.io/egress-bandwidth": &r.Bandwidth.Egress,
	} {
		text := config.GetAnnotations()[key]
		if text == "" {
			continue
		}
		q, err := resource.ParseQuantity(text)
		if err != nil || q.Value() <= 0 {
			return failure.Invalid("annotation %s=%q must be a positive number of bits per second", key, text)
		}
		*limit = q.Value()
	}
	return nil
}

// ports returns the mappings with a host port.
func ports(mappings []*runtimeapi.PortMapping) ([]network.Port, error) {
	var out []network.Port
	for _, m := range mappings {
		if m.GetHostPort() == 0 {
			continue
		}
		protocol, known := runtimeapi.Protocol_name[int32(m.GetProtocol())]
		if !known {
			return nil, failure.Invalid("port %d: unknown protocol %d", m.GetHostPort(), m.GetProtocol())
		}
		if m.GetHostPort() < 0 || m.GetHostPort() > 65535 || m.GetContainerPort() < 1 || m.GetContainerPort() > 65535 {
			return nil, failure.Invalid("port %d:%d is out of range", m.GetHostPort(), m.GetContainerPort())
		}
		out = append(out, network.Port{
			HostIP: m.GetHostIp(), HostPort: int(m.GetHostPort()), PodPort: int(m.GetContainerPort()), Protocol: strings.ToLower(protocol),
		})
	}
	return out, nil
}
