package node

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/network"
)

// resolver returns the resolver configuration that a pod's own dnsConfig extends. kind is the network of pods. The
// result has the cluster's name servers for pods of ClusterFirst if the cluster has any, and the host's otherwise.
func (o *Options) resolver(kind string, pod *corev1.Pod) *runtimeapi.DNSConfig {
	if pod.Spec.HostNetwork {
		kind = string(network.KindHost)
	}
	host := engine.Resolver(kind)
	clustered := pod.Spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet ||
		pod.Spec.DNSPolicy == corev1.DNSClusterFirst && !pod.Spec.HostNetwork
	if !clustered || len(o.ClusterDNS) == 0 {
		return &runtimeapi.DNSConfig{Servers: host.Servers, Searches: host.Searches, Options: host.Options}
	}
	searches := append([]string{pod.Namespace + ".svc." + o.ClusterDomain, "svc." + o.ClusterDomain, o.ClusterDomain}, host.Searches...)
	return &runtimeapi.DNSConfig{Servers: o.ClusterDNS, Searches: searches, Options: []string{"ndots:5"}}
}
