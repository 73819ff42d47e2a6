package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestPodNetwork: pods have the IPv4 and IPv6 addresses from the node's plugins. The node and other pods reach them
// there. The addresses are released with the pods. The test runs with clones and with forks.
func TestPodNetwork(t *testing.T) {
	for name, forks := range map[string]bool{"clones": enginetest.Clones, "forks": enginetest.Forks} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, forks)
			n.serve(t)
			ctx := testdeadline.Context(t, 3*time.Minute)
			ids, addresses := map[string]string{}, map[string][]string{}
			for _, pod := range []string{"one", "two", "three"} {
				config := critest.Pod(pod)
				config.LogDirectory = n.logs
				ids[pod] = n.Run(ctx, t, config)
				addresses[pod] = n.addresses(ctx, t, ids[pod])
				web := "ip addr; hostname > /tmp/index.html; httpd -p 80 -h /tmp; httpd -p [::]:81 -h /tmp; exec sleep 1000"
				ids[pod+"'s container"] = n.Start(ctx, t, ids[pod], critest.Container(pod, "sh", "-c", web), config)
			}
			for _, pod := range []string{"one", "two", "three"} {
				for i, url := range []string{"http://%s:80/", "http://[%s]:81/"} {
					url = fmt.Sprintf(url, addresses[pod][i])
					if got := get(ctx, t, url); got != pod+"\n" {
						t.Errorf("the node asks %s at %s: %q", pod, url, got)
					}
					if got := n.Sh(ctx, t, ids["one's container"], "wget -qO- "+url); got != pod+"\n" {
						t.Errorf("a pod asks %s at %s: %q", pod, url, got)
					}
				}
			}
			if got := n.Sh(ctx, t, ids["one's container"], "cat /sys/class/net/eth0/mtu"); got != "1400\n" {
				t.Errorf("MTU %s", got)
			}
			for _, pod := range []string{"one", "two", "three"} {
				n.Remove(ctx, t, ids[pod])
			}
			n.nothingLeft(t)
		})
	}
}

// addresses returns a pod's addresses according to its status.
func (n *node) addresses(ctx context.Context, t *testing.T, pod string) []string {
	t.Helper()
	st, err := n.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: pod})
	if err != nil {
		t.Fatal(err)
	}
	network := st.GetStatus().GetNetwork()
	out := []string{network.GetIp()}
	for _, ip := range network.GetAdditionalIps() {
		out = append(out, ip.GetIp())
	}
	if len(out) != 2 || !strings.HasPrefix(out[0], "10.88.0.") || !strings.HasPrefix(out[1], "fd00:88::") {
		t.Fatalf("addresses %q", out)
	}
	return out
}

// get queries a server, and retries until the server listens.
func get(ctx context.Context, t *testing.T, url string) string {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			if ctx.Err() != nil || !errors.Is(err, unix.ECONNREFUSED) {
				t.Fatal(err)
			}
			continue
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
}
