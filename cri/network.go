package cri

import (
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/network"
)

// deviceOf is the network device of VMs in a network of that kind. The hypervisor
// has a device for each, so that no VM made for one kind is ever another pod's.
func deviceOf(kind network.Kind) hypervisor.Network { return hypervisor.Network(kind) }

// networkOf is the kind of network that a VM was asked for with.
func networkOf(m hypervisor.Machine) network.Kind { return asked(network.Kind(m.Network)) }

// asked is the kind of which kind may be a lesser form.
func asked(kind network.Kind) network.Kind {
	if kind == network.KindRestricted {
		return network.KindUser
	}
	return kind
}

// networkRequest is what the pod asks of its network, without its id.
func networkRequest(config *runtimeapi.PodSandboxConfig) (r network.Request, err error) {
	if r.Ports, err = ports(config); err != nil {
		return r, err
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
			return r, invalid("pod %s: annotation %s=%q is no number of bits a second", config.GetMetadata().GetName(), key, text)
		}
		*limit = q.Value()
	}
	return r, nil
}

// ports are those that a host port is wanted for.
func ports(config *runtimeapi.PodSandboxConfig) ([]network.Port, error) {
	var out []network.Port
	for _, m := range config.GetPortMappings() {
		if m.GetHostPort() == 0 {
			continue
		}
		if m.GetProtocol() != runtimeapi.Protocol_TCP {
			return nil, unsupported("pod %s: port %d: protocol %s cannot be published yet, only TCP",
				config.GetMetadata().GetName(), m.GetHostPort(), m.GetProtocol())
		}
		if m.GetHostPort() < 0 || m.GetHostPort() > 65535 || m.GetContainerPort() < 1 || m.GetContainerPort() > 65535 {
			return nil, invalid("pod %s: port %d:%d is out of range", config.GetMetadata().GetName(), m.GetHostPort(), m.GetContainerPort())
		}
		out = append(out, network.Port{
			HostIP: m.GetHostIp(), HostPort: int(m.GetHostPort()), PodPort: int(m.GetContainerPort()), Protocol: "tcp",
		})
	}
	return out, nil
}
