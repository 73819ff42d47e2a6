package cri

import (
	"context"
	"fmt"
	"net"
	"testing"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/cri/critest"
)

// portForward: a client's connections reach listeners of the pod, also those of its own
// loopback.
func portForward(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("forward")
	pod := n.podOf(ctx, t, config)
	c := n.Start(ctx, t, pod, critest.Container("c", "sh", "-c",
		"echo local >/tmp/a; httpd -p 127.0.0.1:8080 -h /tmp; httpd -p 8081 -h /tmp; exec sleep 1000"), config)
	n.Sh(ctx, t, c, "for p in 8080 8081; do while ! wget -qO- 127.0.0.1:$p/a; do usleep 1000; done; done")
	res, err := n.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: pod, Port: []int32{8080}})
	if err != nil {
		t.Fatal(err)
	}
	ports, end := critest.Forward(ctx, t, res.GetUrl(), ":8080", ":8081")
	defer end()
	for _, p := range ports {
		if got := get(ctx, t, fmt.Sprintf("http://127.0.0.1:%d/a", p.Local)); got != "local\n" {
			t.Errorf("port %d: %q", p.Remote, got)
		}
	}
	_, err = n.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: "none", Port: []int32{80}})
	expect(t, "port-forward to nobody", err, codes.NotFound)
}

// hostPorts: the plugin portmap publishes a pod's ports, of TCP and of UDP, at the node's
// addresses, and takes them back.
func hostPorts(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("ports")
	config.PortMappings = []*runtimeapi.PortMapping{
		{HostPort: 18080, ContainerPort: 80},
		{HostPort: 18053, ContainerPort: 53, Protocol: runtimeapi.Protocol_UDP},
		{ContainerPort: 99},
	}
	pod := n.podOf(ctx, t, config)
	c := n.Start(ctx, t, pod, critest.Container("c", "sh", "-c", "echo web >/tmp/a; exec httpd -f -p 80 -h /tmp"), config)
	if got := get(ctx, t, "http://10.88.0.1:18080/a"); got != "web\n" {
		t.Errorf("the published port says %q", got)
	}
	// Nobody listens there, which the pod's own kernel counts.
	const unheard = "awk '/^Udp:/{n = $3} END {print n}' /proc/net/snmp"
	before := n.Sh(ctx, t, c, unheard)
	send(ctx, t, "10.88.0.1:18053")
	for n.Sh(ctx, t, c, unheard) == before {
		pause(ctx, t)
	}
	n.Remove(ctx, t, pod)
	if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", "10.88.0.1:18080"); err == nil {
		conn.Close()
		t.Error("the published port outlives its pod")
	}
}

// send sends a datagram.
func send(ctx context.Context, t *testing.T, address string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("words")); err != nil {
		t.Error(err)
	}
}
