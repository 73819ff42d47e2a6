// Package testkube gives tests a Kubernetes cluster of one node: released versions of etcd, the control plane and a
// kubelet. A package with a cluster runs its tests by testnet.Alone: the cluster uses the ports of a network namespace,
// and adds an address to its loopback.
package testkube

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
)

// NodeName and NodeIP identify the node. NodeIP is an address of the loopback, because kubelets do not accept
// 127.0.0.1.
const (
	NodeName = "node"
	NodeIP   = "10.99.0.1"
)

// apiIP is the address of the API server's Service. It is on the loopback because there is no kube-proxy.
const apiIP = "10.96.0.1"

// The well-known ports.
const (
	apiPort     = 443
	kubeletPort = 10250
)

// Cluster is a control plane. It ends with its test.
type Cluster struct {
	// Dir holds all files of the cluster and of its node. Its path is short, because sockets lie below it.
	Dir string
	// Root and Logs are the kubelet's directories, if not below Dir.
	Root, Logs string
	// Config is an administrator's configuration.
	Config *rest.Config
	Client kubernetes.Interface

	program string   // kubeall
	api     *Process // the API server
	cgroup  string   // the kubelet's, with its pods
	pki     *authority
}

// Start starts a control plane and returns when it answers.
func Start(t testing.TB) *Cluster {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "bk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove the cluster's directory: %v", err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { // shims are other users
		t.Fatal(err)
	}
	c := &Cluster{Dir: dir, program: Program(t, "kubeall"), cgroup: newCgroup(t, filepath.Base(dir))}
	t.Cleanup(func() { clearNetwork(t) })
	for _, ip := range []string{NodeIP, apiIP} {
		testnet.Run(t, "ip", "addr", "add", ip+"/32", "dev", "lo")
	}
	if err := c.certify(); err != nil {
		t.Fatal(err)
	}
	c.Config = &rest.Config{
		Host: fmt.Sprintf("https://127.0.0.1:%d", apiPort), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: c.file("ca.crt"), CertFile: c.file("admin.crt"), KeyFile: c.file("admin.key")},
	}
	if c.Client, err = kubernetes.NewForConfig(c.Config); err != nil {
		t.Fatal(err)
	}
	ctx := testdeadline.Context(t, time.Minute)
	c.etcd(t)
	c.apiServer(t)
	// The controller-manager exits if there is no API.
	c.WaitAPI(ctx, t)
	c.controllers(t)
	c.scheduler(t)
	return c
}

// clearNetwork removes the cluster's addresses and bridges from the namespace, for the next test.
func clearNetwork(t testing.TB) {
	t.Helper()
	testnet.Run(t, "ip", "addr", "flush", "dev", "lo", "to", NodeIP+"/32")
	testnet.Run(t, "ip", "addr", "flush", "dev", "lo", "to", apiIP+"/32")
	links, err := net.Interfaces()
	if err != nil {
		t.Errorf("remove the bridges: %v", err)
	}
	for _, link := range links {
		if link.Flags&net.FlagLoopback == 0 {
			testnet.Run(t, "ip", "link", "del", link.Name)
		}
	}
}

// Program returns the path of one of the programs of hack/build-once.
func Program(t testing.TB, name string) string {
	t.Helper()
	root, err := testgo.Root()
	if err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), filepath.Join(root, "hack", "build-once"), name)
	var stderr strings.Builder
	build.Stderr = &stderr
	out, err := build.Output()
	if err != nil {
		t.Fatalf("build %s: %v: %s", name, err, &stderr)
	}
	return strings.TrimSpace(string(out))
}

// certify creates all certificates, and the programs' kubeconfig files.
func (c *Cluster) certify() (err error) {
	dir := filepath.Join(c.Dir, "pki")
	if err = os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if c.pki, err = newAuthority(dir); err != nil {
		return err
	}
	for _, one := range []struct {
		file, name, group string
		hosts             []string
	}{
		{file: "admin", name: "admin", group: "system:masters"},
		{file: "apiserver", name: "kube-apiserver", group: "system:masters", hosts: []string{
			"127.0.0.1", NodeIP, apiIP, "localhost", "kubernetes.default.svc",
		}},
		{file: "proxy", name: "proxy"},
		{file: "service-accounts", name: "service-accounts"},
		{file: "controllers", name: "system:kube-controller-manager", hosts: []string{"127.0.0.1"}},
		{file: "scheduler", name: "system:kube-scheduler", hosts: []string{"127.0.0.1"}},
		{file: "bootstrap", name: "bootstrap", group: "system:bootstrappers"},
		{file: metrics, name: metrics, hosts: []string{metrics + ".kube-system.svc"}},
		{file: "kubelet", name: "system:node:" + NodeName, group: "system:nodes", hosts: []string{NodeName, NodeIP, "127.0.0.1"}},
	} {
		if err = c.pki.issue(one.file, one.name, one.group, one.hosts...); err != nil {
			return err
		}
		if err = c.pki.kubeconfig(one.file); err != nil {
			return err
		}
	}
	return nil
}

// file returns the path of a certificate's file.
func (c *Cluster) file(name string) string { return filepath.Join(c.pki.dir, name) }

// Wait calls f until it succeeds, and fails the test with its last error when ctx ends.
func (c *Cluster) Wait(ctx context.Context, t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	c.WaitEvery(ctx, t, 100*time.Millisecond, what, f)
}

// WaitEvery is like Wait with another interval.
func (c *Cluster) WaitEvery(ctx context.Context, t testing.TB, interval time.Duration, what string, f func(context.Context) error) {
	t.Helper()
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited for %s: %v: %v", what, context.Cause(ctx), err)
		}
	}
}
