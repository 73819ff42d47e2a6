package node

import (
	"bufio"
	"bytes"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// resolvConf is the host's.
const resolvConf = "/etc/resolv.conf"

// resolver is the resolver configuration that a pod's own is laid over: the cluster's for those of
// ClusterFirst, and the host's for the others and where the cluster has none.
func (n *node) resolver(pod *corev1.Pod) *runtimeapi.DNSConfig {
	host := readResolver(resolvConf)
	clustered := pod.Spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet ||
		pod.Spec.DNSPolicy == corev1.DNSClusterFirst && !pod.Spec.HostNetwork
	if !clustered || len(n.o.ClusterDNS) == 0 {
		return host
	}
	domain := n.o.ClusterDomain
	searches := append([]string{pod.Namespace + ".svc." + domain, "svc." + domain, domain}, host.Searches...)
	return &runtimeapi.DNSConfig{Servers: n.o.ClusterDNS, Searches: searches, Options: []string{"ndots:5"}}
}

// readResolver reads a resolver's configuration; what cannot be read is empty.
func readResolver(path string) *runtimeapi.DNSConfig {
	data, _ := os.ReadFile(path)
	out := &runtimeapi.DNSConfig{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		switch words[0] {
		case "nameserver":
			out.Servers = append(out.Servers, words[1])
		case "search":
			out.Searches = nil
			for _, one := range words[1:] {
				if one = strings.TrimSuffix(one, "."); one != "" {
					out.Searches = append(out.Searches, one)
				}
			}
		case "options":
			out.Options = words[1:]
		}
	}
	return out
}
