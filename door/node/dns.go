package node

import (
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/network"
)

// resolver returns the resolver configuration that a pod's own dnsConfig extends.
func (n *node) resolver(pod *corev1.Pod) *runtimeapi.DNSConfig {
	kind := n.runtime.Backend().Network
	if pod.Spec.HostNetwork {
		kind = string(network.KindHost)
	}
	return n.over(pod, engine.Resolver(kind))
}

// over returns the cluster's resolver configuration for pods of ClusterFirst if the cluster has name servers, and the
// host's otherwise.
func (n *node) over(pod *corev1.Pod, host network.DNS) *runtimeapi.DNSConfig {
	clustered := pod.Spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet ||
		pod.Spec.DNSPolicy == corev1.DNSClusterFirst && !pod.Spec.HostNetwork
	if !clustered || len(n.o.ClusterDNS) == 0 {
		return &runtimeapi.DNSConfig{Servers: host.Servers, Searches: host.Searches, Options: host.Options}
	}
	domain := n.o.ClusterDomain
	searches := append([]string{pod.Namespace + ".svc." + domain, "svc." + domain, domain}, host.Searches...)
	return &runtimeapi.DNSConfig{Servers: n.o.ClusterDNS, Searches: searches, Options: []string{"ndots:5"}}
}
