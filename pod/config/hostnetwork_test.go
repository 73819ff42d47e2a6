package config

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestHostNetwork: a pod on the host's network requests it from the runtime, and has the node's name.
func TestHostNetwork(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}}
	p.Spec.HostNetwork = true
	c := Sandbox(&Options{Pod: p, NodeName: "node-1"}, 0)
	if got := c.GetLinux().GetSecurityContext().GetNamespaceOptions(); got.GetNetwork() != runtimeapi.NamespaceMode_NODE ||
		got.GetPid() != runtimeapi.NamespaceMode_CONTAINER || c.GetHostname() != "node-1" {
		t.Errorf("hostNetwork: %v, %q", got, c.GetHostname())
	}
	p.Spec.HostNetwork = false
	if c = Sandbox(&Options{Pod: p, NodeName: "node-1"}, 0); c.GetHostname() != "p" ||
		c.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != runtimeapi.NamespaceMode_POD {
		t.Errorf("Sandbox without hostNetwork: got Linux %v and hostname %q, want the pod's own network and \"p\"", c.GetLinux(), c.GetHostname())
	}
}
