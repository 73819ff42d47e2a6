package cri

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestHostNetwork: the ports of a pod with host network are open on the host while the pod listens, with or without a
// door. Its packets leave through the host.
func TestHostNetwork(t *testing.T) {
	n := newNode(t, enginetest.Clones)
	end := n.serve(t)
	ctx := testdeadline.Context(t, 2*time.Minute)
	config := critest.Pod("host")
	config.LogDirectory = n.logs
	config.Linux.SecurityContext = &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}, Privileged: true,
	}
	config.PortMappings = []*runtimeapi.PortMapping{{HostPort: 8081, ContainerPort: 8081}} // as a kubelet sends them
	pod := n.Run(ctx, t, config)
	web := `hostname > /tmp/index.html; httpd -p 8081 -h /tmp; httpd -p 127.0.0.1:8082 -h /tmp; exec sleep 1000`
	container := critest.Container("c", "sh", "-c", web)
	container.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: config.Linux.SecurityContext.NamespaceOptions,
	}
	id := n.Start(ctx, t, pod, container, config)
	for _, url := range []string{"http://127.0.0.1:8081/", "http://127.0.0.1:8082/", "http://[::1]:8081/"} {
		if got := get(ctx, t, url); got != "host\n" {
			t.Errorf("%s: %q", url, got)
		}
	}
	echoes := n.echoes(t, ":8053", "127.0.0.1:8054")
	echoes.Linux.SecurityContext = container.Linux.SecurityContext
	n.Start(ctx, t, pod, echoes, config)
	for _, address := range []string{"127.0.0.1:8053", "[::1]:8053", "127.0.0.1:8054"} {
		echo(ctx, t, address)
	}
	if st, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod}); err != nil ||
		st.GetStatus().GetNetwork().GetIp() != "" {
		t.Errorf("its status has an address, which the kubelet should set: %v, %v", st.GetStatus().GetNetwork(), err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("the host\n")) }))
	defer server.Close()
	_, port, _ := strings.Cut(server.Listener.Addr().String(), ":")
	if got := n.Sh(ctx, t, id, "wget -qO- http://10.0.2.2:"+port); got != "the host\n" {
		t.Errorf("the pod asks the host: %q", got)
	}
	look := critest.Container("look", "sleep", "1000")
	look.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{
		NamespaceOptions: config.Linux.SecurityContext.NamespaceOptions, Privileged: true,
	}
	const options = "mkdir /t && mount -t tracefs tracefs /t && cat /t/options/record-cmd /t/events/sock/inet_sock_set_state/enable"
	if got := n.Sh(ctx, t, n.Start(ctx, t, pod, look, config), options); got != "0\n1\n" {
		t.Errorf("the guest's kernel traces switches of tasks, or no sockets: %q", got)
	}

	end()
	if got := get(ctx, t, "http://127.0.0.1:8081/"); got != "host\n" {
		t.Errorf("without a door: %q", got)
	}
	n.serve(t)
	echo(ctx, t, "127.0.0.1:8053")
	n.Sh(ctx, t, id, `httpd -p 8083 -h /tmp; kill $(ps | grep "[h]ttpd -p 8081" | sed 's/^ *//; s/ .*//')`)
	if got := get(ctx, t, "http://127.0.0.1:8083/"); got != "host\n" {
		t.Errorf("with another door: %q", got)
	}
	closed(ctx, t, "127.0.0.1:8081")
	send(ctx, t, "127.0.0.1:8053", "end")
	for taken := true; taken; {
		conn, err := net.ListenPacket("udp", ":8053")
		if taken = err != nil; taken {
			pause(ctx, t)
			continue
		}
		conn.Close()
	}
	n.Remove(ctx, t, pod)
	for _, address := range []string{"127.0.0.1:8082", "127.0.0.1:8083"} {
		closed(ctx, t, address)
	}
	n.nothingLeft(t)
}

// closed waits until an address has no listener.
func closed(ctx context.Context, t *testing.T, address string) {
	t.Helper()
	for {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return
		}
		conn.Close()
		select {
		case <-time.After(10 * time.Millisecond): // there is no notification
		case <-ctx.Done():
			t.Fatalf("%s: %v", address, ctx.Err())
		}
	}
}
