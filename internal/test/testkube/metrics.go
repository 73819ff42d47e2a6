package testkube

import (
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// metrics is the name of metrics-server, of its user, its files and its Service.
const metrics = "metrics-server"

// metricsPort is metrics-server's port.
const metricsPort = 4443

// StartMetrics applies the documents of metrics-server as an administrator, and runs it until the test's end. The API
// has its figures some twenty seconds later, after two requests to the node.
func (c *Cluster) StartMetrics(t testing.TB, apply func(documents string)) {
	t.Helper()
	ca, err := os.ReadFile(c.file("ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	// metrics-server exits without these rights.
	apply(fmt.Sprintf(metricsDocuments, NodeIP, metricsPort, base64.StdEncoding.EncodeToString(ca)))
	conf := c.file(metrics + ".conf")
	c.Run(t, metrics, exec.Command(Program(t, metrics), "--kubeconfig="+conf,
		"--authentication-kubeconfig="+conf, "--authorization-kubeconfig="+conf,
		"--bind-address="+NodeIP, fmt.Sprintf("--secure-port=%d", metricsPort),
		"--tls-cert-file="+c.file(metrics+".crt"), "--tls-private-key-file="+c.file(metrics+".key"),
		"--kubelet-certificate-authority="+c.file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--metric-resolution=10s", "--kubelet-request-timeout=9s")) // its limits for resolution and timeout
}

// metricsDocuments give metrics-server the rights that its release needs, of a node's API only the figures, and
// register its address.
const metricsDocuments = `{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: metrics-server}, rules: [
  {apiGroups: [""], resources: [nodes/metrics], verbs: [get]},
  {apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: metrics-server},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics-server},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: metrics-server}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: metrics-server-delegator},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: metrics-server}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: metrics-server, namespace: kube-system},
  roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader},
  subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: metrics-server}]}
---
{apiVersion: v1, kind: Service, metadata: {name: metrics-server, namespace: kube-system}, spec: {ports: [{name: https, port: 443}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, addressType: IPv4,
  metadata: {name: metrics-server, namespace: kube-system, labels: {kubernetes.io/service-name: metrics-server}},
  endpoints: [{addresses: [%s], conditions: {ready: true}}], ports: [{name: https, port: %d}]}
---
{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1beta1.metrics.k8s.io}, spec: {
  group: metrics.k8s.io, version: v1beta1, groupPriorityMinimum: 100, versionPriority: 100, caBundle: %s,
  service: {name: metrics-server, namespace: kube-system}}}
`
