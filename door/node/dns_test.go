package node

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/network"
)

// TestResolver checks that pods of ClusterFirst get the cluster's name servers. Other pods get those name servers of
// the host that a pod of their network can reach.
func TestResolver(t *testing.T) {
	const servers = "10.96.0.10"
	for name, tc := range map[string]struct {
		policy    corev1.DNSPolicy
		host      bool
		cluster   []string
		network   network.Kind
		clustered bool
		asks      network.Kind // the network that decides which servers of the host it gets
	}{
		"cluster first":        {policy: corev1.DNSClusterFirst, cluster: []string{servers}, network: network.KindCNI, clustered: true},
		"no cluster's servers": {policy: corev1.DNSClusterFirst, network: network.KindCNI, asks: network.KindCNI},
		"without a network":    {policy: corev1.DNSClusterFirst, network: network.KindNone, asks: network.KindNone},
		"the user's network":   {policy: corev1.DNSClusterFirst, network: network.KindUser, asks: network.KindUser},
		"the node's":           {policy: corev1.DNSDefault, cluster: []string{servers}, network: network.KindCNI, asks: network.KindCNI},
		"the host's network": {policy: corev1.DNSClusterFirst, host: true, cluster: []string{servers}, network: network.KindCNI,
			asks: network.KindHost},
		"with the host's network": {policy: corev1.DNSClusterFirstWithHostNet, host: true, cluster: []string{servers},
			network: network.KindCNI, clustered: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{ClusterDNS: tc.cluster, ClusterDomain: "cluster.local"}
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "own"}, Spec: corev1.PodSpec{DNSPolicy: tc.policy, HostNetwork: tc.host}}
			got := o.resolver(string(tc.network), p)
			if tc.clustered {
				if !slices.Equal(got.Servers, tc.cluster) || got.Searches[0] != "own.svc.cluster.local" || got.Options[0] != "ndots:5" {
					t.Errorf("resolver configuration: %v", got)
				}
				return
			}
			want := engine.Resolver(string(tc.asks))
			if !slices.Equal(got.Servers, want.Servers) || !slices.Equal(got.Searches, want.Searches) || !slices.Equal(got.Options, want.Options) {
				t.Errorf("resolver configuration: %v, want %v", got, want)
			}
		})
	}
}
