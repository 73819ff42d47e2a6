package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
)

// testNetwork: a pod is reachable at its address from the node and from another pod, and at its host ports. It knows
// its name in the cluster and the cluster's name servers. A pod with host network has the node's address and ports.
func (w *world) testNetwork(t *testing.T) {
	ctx := testdeadline.Context(t, 2*time.Minute)
	w.pod(ctx, t, "server", `{hostname: web, subdomain: site, containers: [{name: c, command: [httpd, -f, -p, "8080", -h, /etc],
  ports: [{containerPort: 8080, hostPort: 18082}], readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}}]}`)
	w.pod(ctx, t, "client", `{dnsPolicy: Default, containers: [{name: c, command: [sleep, "1000"]}]}`)
	w.pod(ctx, t, "host", `{hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet, containers: [{name: c,
  env: [{name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}],
  command: [sh, -c, "mkdir /w; echo $IP >/w/page; exec httpd -f -p 18083 -h /w"]}]}`)
	server := w.ready(ctx, t, "server")
	host := w.ready(ctx, t, "host")
	w.ready(ctx, t, "client")
	if len(server.Status.PodIPs) != 2 || server.Status.PodIP != server.Status.PodIPs[0].IP {
		t.Errorf("its addresses are %s, %v", server.Status.PodIP, server.Status.PodIPs)
	}
	if host.Status.PodIP != testkube.NodeIP || len(host.Status.PodIPs) != 1 {
		t.Errorf("of the host's network it has %s, %v", host.Status.PodIP, host.Status.PodIPs)
	}
	for _, at := range []string{server.Status.PodIP + ":8080", testkube.NodeIP + ":18082"} {
		if got, err := testkube.Fetch(ctx, "http://"+at+"/hostname"); got != "web\n" || err != nil {
			t.Errorf("from the node at %s: %q, %v", at, got, err)
		}
	}
	w.Wait(ctx, t, "the port of the host's", func(ctx context.Context) error {
		got, err := testkube.Fetch(ctx, "http://"+testkube.NodeIP+":18083/page")
		if err == nil && got != testkube.NodeIP+"\n" {
			err = fmt.Errorf("its answer is %q", got)
		}
		return err
	})
	says := func(pod string, command ...string) string {
		t.Helper()
		out, errs, err := w.exec(ctx, pod, corev1.PodExecOptions{Command: command}, nil)
		if err != nil {
			t.Errorf("%s: %v: %v: %s", pod, command, err, errs)
		}
		return out
	}
	if got := says("client", "wget", "-q", "-O", "-", "http://"+server.Status.PodIP+":8080/hostname"); got != "web\n" {
		t.Errorf("from another pod: %q", got)
	}
	if got := says("server", "hostname", "-f"); got != "web.site.default.svc.cluster.local\n" {
		t.Errorf("its name in the cluster: %q", got)
	}
	if got := says("server", "cat", "/etc/hosts"); !slices.Contains(strings.Split(got, "\n"),
		server.Status.PodIP+"\tweb.site.default.svc.cluster.local\tweb") {
		t.Errorf("its hosts: %s", got)
	}
	const cluster = "search default.svc.cluster.local svc.cluster.local cluster.local"
	for pod, of := range map[string]bool{"server": true, "host": true, "client": false} {
		got := says(pod, "cat", "/etc/resolv.conf")
		if strings.Contains(got, cluster) != of || strings.Contains(got, "nameserver 10.96.0.10\n") != of ||
			strings.Contains(got, "ndots:5") != of {
			t.Errorf("the resolver of %s: %s", pod, got)
		}
	}
}
