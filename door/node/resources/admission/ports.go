package admission

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/door/node/pods/control"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// hostPort is a port of the node that a pod occupies.
type hostPort struct {
	protocol corev1.Protocol
	address  string
	port     int32
}

// anyAddress stands for all interfaces. It is the default of a port without an address.
const anyAddress = "0.0.0.0"

// hostPorts returns the host ports of the containers that may run at the same time. With the host's network every port
// is a host port.
func hostPorts(pod *corev1.Pod) (out []hostPort) {
	for c, kind := range podspec.All(&pod.Spec) {
		if kind == podspec.Initial {
			continue
		}
		for _, p := range c.Ports {
			port := p.HostPort
			if port == 0 && pod.Spec.HostNetwork {
				port = p.ContainerPort
			}
			if port != 0 {
				out = append(out, hostPort{cmp.Or(p.Protocol, corev1.ProtocolTCP), canonical(p.HostIP), port})
			}
		}
	}
	return out
}

// canonical returns the canonical form of an address.
func canonical(address string) string {
	if a, err := netip.ParseAddr(address); err == nil {
		return a.Unmap().String()
	}
	return cmp.Or(address, anyAddress)
}

// clashes reports whether two pods cannot have these ports at the same time.
func (p hostPort) clashes(other hostPort) bool {
	return p.protocol == other.protocol && p.port == other.port &&
		(p.address == other.address || p.address == anyAddress || other.address == anyAddress)
}

// checkPorts returns a rejection if a port of the pod is occupied. The caller holds mu.
func (a *Admission) checkPorts(pod *corev1.Pod) *control.Rejection {
	for _, want := range hostPorts(pod) {
		for uid, had := range a.ports {
			if uid != pod.UID && slices.ContainsFunc(had, want.clashes) {
				const message = "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"
				return &control.Rejection{Reason: "NodePorts", Message: message}
			}
		}
	}
	return nil
}

// assign records a pod's resources and ports. The caller holds mu.
func (a *Admission) assign(pod *corev1.Pod, list corev1.ResourceList) {
	a.given[pod.UID] = list
	if ports := hostPorts(pod); len(ports) > 0 {
		a.ports[pod.UID] = ports
	}
}
