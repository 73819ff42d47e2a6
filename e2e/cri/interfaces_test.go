package cri

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
)

// more is a plugin that adds two interfaces with the bridge plugin, like a plugin for several networks. They have the
// names that the guest's kernel would choose, swapped.
const more = `#!/bin/sh
cd /
link() { CNI_IFNAME=$1 PLUGINS/bridge >/dev/null; }
case $CNI_COMMAND in
ADD|DEL)
	link eth2 <<-END && link eth1 <<-END2 && echo '{"cniVersion": "1.0.0"}';;
	{"cniVersion": "1.0.0", "name": "more", "type": "bridge", "bridge": "cni1", "isGateway": true, "mtu": 1300,
	 "ipam": {"type": "host-local", "dataDir": "DATA", "ranges": [[{"subnet": "10.89.0.0/24"}], [{"subnet": "fd00:89::/64"}]],
	 "routes": [{"dst": "10.99.0.0/16"}, {"dst": "fd00:99::/64"}]}}
	END
	{"cniVersion": "1.0.0", "name": "bare", "type": "bridge", "bridge": "cni2"}
	END2
esac
`

// serveMore serves a node with three interfaces for each pod.
func serveMore(t *testing.T, forks bool) *node {
	t.Helper()
	n := newNode(t, forks)
	bin := t.TempDir()
	n.o.Engine.CNI.Bin = append(n.o.Engine.CNI.Bin, bin)
	text := strings.NewReplacer("DATA", n.data, "PLUGINS", testnet.Plugins).Replace(more)
	if err := os.WriteFile(filepath.Join(bin, "more"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(n.o.Engine.CNI.Conf, "10-bridge.conflist")
	list, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	chain := strings.Replace(string(list), "\n]}", `, {"type": "more"}]}`, 1)
	if err := os.WriteFile(path, []byte(chain), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestInterfaces: the guest has all interfaces of the plugins with their names, addresses, routes and MTU. Packets pass
// in both directions, also after the server was replaced.
func TestInterfaces(t *testing.T) {
	for name, forks := range map[string]bool{"clones": enginetest.Clones, "forks": enginetest.Forks} {
		t.Run(name, func(t *testing.T) {
			n := serveMore(t, forks)
			end := n.serve(t)
			ctx := testdeadline.Context(t, 3*time.Minute)
			config := critest.Pod("several")
			config.LogDirectory = n.logs
			pod := n.Run(ctx, t, config)
			n.addresses(ctx, t, pod) // only the addresses of eth0
			web := "head -c 4000000 /dev/zero > /tmp/data; echo here > /tmp/index.html; " +
				"httpd -p 80 -h /tmp; httpd -p [::]:81 -h /tmp; exec sleep 1000"
			container := n.Start(ctx, t, pod, critest.Container("web", "sh", "-c", web), config)
			ask := func(command string, want ...string) {
				t.Helper()
				got := n.Sh(ctx, t, container, command)
				for _, want := range want {
					if !strings.Contains(got, want) {
						t.Errorf("%s: no %q in\n%s", command, want, got)
					}
				}
			}
			ask("ip addr show eth2", "mtu 1300", "inet 10.89.0.2/24", "inet6 fd00:89::2/64", "UP")
			ask("ip route", "default via 10.88.0.1 dev eth0", "10.99.0.0/16 via 10.89.0.1 dev eth2", "10.89.0.0/24 dev eth2")
			ask("ip -6 route", "default via fd00:88::1 dev eth0", "fd00:99::/64 via fd00:89::1 dev eth2")
			ask("ip addr show eth1; ls /sys/class/net | wc -l", "mtu 1500", "UP", "\n4\n")
			if got := n.Sh(ctx, t, container, "ip addr show eth1"); strings.Contains(got, "inet") {
				t.Errorf("an interface without addresses: %s", got)
			}
			for range 2 {
				for _, url := range []string{"http://10.88.0.2:80/", "http://10.89.0.2:80/", "http://[fd00:89::2]:81/"} {
					if got := get(ctx, t, url); got != "here\n" {
						t.Errorf("the node asks at %s: %q", url, got)
					}
				}
				before := n.sent(ctx, t, pod)
				if got := len(get(ctx, t, "http://10.89.0.2:80/data")); got != 4000000 {
					t.Errorf("%d bytes", got)
				}
				// The guest counts a packet when its card has sent it, so the last ones are counted later.
				if passed := n.sent(ctx, t, pod) - before; passed < 2000000 {
					t.Errorf("%d bytes have passed eth2", passed)
				}
				ask("wget -qO- "+serveNode(t, "10.89.0.1"), "the node")
				ask("wget -qO- "+serveNode(t, "[fd00:89::1]"), "the node")
				end()
				end = n.serve(t)
			}
			n.Remove(ctx, t, pod)
			n.nothingLeft(t)
			if left, err := filepath.Glob(filepath.Join(n.data, "more", "*.*.*.*")); err != nil || len(left) > 0 {
				t.Errorf("addresses left: %v, %v", left, err)
			}
		})
	}
}

// sent returns the number of bytes that a pod has sent on eth2, according to its statistics.
func (n *node) sent(ctx context.Context, t *testing.T, pod string) int {
	t.Helper()
	res, err := n.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: pod})
	if err != nil {
		t.Fatal(err)
	}
	network := res.GetStats().GetLinux().GetNetwork()
	all := network.GetInterfaces()
	at := slices.IndexFunc(all, func(i *runtimeapi.NetworkInterfaceUsage) bool { return i.GetName() == "eth2" })
	if at < 0 || len(all) != 2 || network.GetDefaultInterface().GetName() != "eth0" {
		t.Fatalf("statistics of %v", network)
	}
	return int(all[at].GetTxBytes().GetValue())
}

// serveNode serves a web page at one of the node's addresses until the end of the test.
func serveNode(t *testing.T, address string) (url string) {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "the node")
	})}
	go func() { _ = s.Serve(l) }() // until Close
	t.Cleanup(func() { s.Close() })
	return "http://" + l.Addr().String() + "/"
}
