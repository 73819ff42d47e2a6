package cri

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
)

// portForward: a client's connections reach listeners in the pod, also those on its loopback.
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
	expect(t, "port-forward to a missing pod", err, codes.NotFound)
}

// hostPorts: the portmap plugin publishes a pod's TCP and UDP ports at the node's addresses, and removes them with the
// pod.
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
	// The pod's kernel counts datagrams to a port without a listener.
	const unheard = "awk '/^Udp:/{n = $3} END {print n}' /proc/net/snmp"
	before := n.Sh(ctx, t, c, unheard)
	send(ctx, t, "10.88.0.1:18053", "words")
	for n.Sh(ctx, t, c, unheard) == before {
		pause(ctx, t)
	}
	n.Remove(ctx, t, pod)
	if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", "10.88.0.1:18080"); err == nil {
		conn.Close()
		t.Error("the published port outlives its pod")
	}
}

// TestOwnPorts: if the node's plugins do not publish ports, the door does.
func TestOwnPorts(t *testing.T) {
	n := newNode(t, enginetest.Clones)
	conf := filepath.Join(n.o.Engine.CNI.Conf, "10-bridge.conflist")
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(`"capabilities": {"portMappings": true}`), []byte(`"capabilities": {}`), 1)
	if err := os.WriteFile(conf, text, 0o600); err != nil {
		t.Fatal(err)
	}
	end := n.serve(t)
	ctx := testdeadline.Context(t, 2*time.Minute)
	config := critest.Pod("ports")
	config.LogDirectory = n.logs
	config.PortMappings = []*runtimeapi.PortMapping{
		{HostPort: 18080, ContainerPort: 80}, {HostPort: 18053, ContainerPort: 53, Protocol: runtimeapi.Protocol_UDP},
	}
	taken, err := net.ListenPacket("udp", "127.0.0.1:18053")
	if err != nil {
		t.Fatal(err)
	}
	_, err = n.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err == nil || !strings.Contains(err.Error(), "18053") {
		t.Errorf("a taken port: %v", err)
	}
	taken.Close()
	pod := n.Run(ctx, t, config)
	n.Start(ctx, t, pod, critest.Container("c", "sh", "-c", "echo web >/tmp/a; exec httpd -f -p 80 -h /tmp"), config)
	n.Start(ctx, t, pod, n.echoes(t, ":53"), config)
	if got := get(ctx, t, "http://10.88.0.1:18080/a"); got != "web\n" {
		t.Errorf("the published port says %q", got)
	}
	for _, address := range []string{"10.88.0.1:18053", "[::1]:18053"} {
		echo(ctx, t, address)
	}
	end()
	n.serve(t)
	echo(ctx, t, "10.88.0.1:18053")
	n.Remove(ctx, t, pod)
	if conn, err := net.ListenPacket("udp", ":18053"); err != nil {
		t.Errorf("the published port outlives its pod: %v", err)
	} else {
		conn.Close()
	}
	n.nothingLeft(t)
}

// echo checks that a listener returns datagrams up to the largest size. It retries until the listener is there.
func echo(ctx context.Context, t *testing.T, address string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, 1<<16)
	for _, size := range []int{1, 1472, 65507} {
		for {
			if _, err = conn.Write(buf[:size]); err == nil {
				_ = conn.SetReadDeadline(time.Now().Add(testdeadline.For(200 * time.Millisecond)))
				var n int
				if n, err = conn.Read(buf); err == nil && n == size {
					break
				}
			}
			if pause(ctx, t); ctx.Err() != nil {
				t.Fatalf("%d bytes to %s: %v", size, address, err)
			}
		}
	}
}

// echoes returns a container that returns datagrams at UDP addresses until one is "end".
func (n *node) echoes(t *testing.T, addresses ...string) *runtimeapi.ContainerConfig {
	t.Helper()
	program := filepath.Join(t.TempDir(), "udpecho")
	build := testgo.Command(t.Context(), "build", "-o", program, "./testdata/udpecho")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	const name = "localhost/udpecho:test"
	dir := testimage.Build(t, []ociimage.Entry{ociimage.File("udpecho", 0o755, string(data))})
	if _, err := n.o.Engine.Images.Load(t.Context(), "oci:"+dir, name, image.PullOptions{}); err != nil {
		t.Fatal(err)
	}
	c := critest.Container("echoes", append([]string{"/udpecho"}, addresses...)...)
	c.Image.Image = name
	return c
}

// send sends a datagram.
func send(ctx context.Context, t *testing.T, address, text string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Error(err)
	}
}
