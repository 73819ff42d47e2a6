package testkube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// KubeletRoot is the kubelet's root directory.
func (c *Cluster) KubeletRoot() string { return cmp.Or(c.Root, filepath.Join(c.Dir, "k")) }

// LogDir is the directory of pods' logs.
func (c *Cluster) LogDir() string { return cmp.Or(c.Logs, filepath.Join(c.Dir, "l")) }

// Manifests is the directory of static pods.
func (c *Cluster) Manifests() string { return filepath.Join(c.Dir, "m") }

// StartKubelet starts the kubelet with a runtime's socket, and returns when its node is ready. At the test's end
// nothing is left of it; the runtime must remove its pods.
func (c *Cluster) StartKubelet(t testing.TB, socket string) *Process {
	t.Helper()
	for _, dir := range []string{c.KubeletRoot(), c.LogDir(), c.Manifests()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := unmountBelow(c.KubeletRoot()); err != nil {
			t.Errorf("unmount the kubelet's volumes: %v", err)
		}
	})
	config := filepath.Join(c.Dir, "kubelet.yaml")
	if err := os.WriteFile(config, []byte(c.kubeletConfig(socket)), 0o600); err != nil {
		t.Fatal(err)
	}
	p := c.start(t, "kubelet", "--config="+config, "--kubeconfig="+c.file("kubelet.conf"), "--root-dir="+c.KubeletRoot(),
		"--hostname-override="+NodeName, "--node-ip="+NodeIP, "--cert-dir="+filepath.Join(c.Dir, "kubelet"), "-v=2")
	c.Wait(testdeadline.Context(t, time.Minute), t, "the node to be ready", c.nodeReady)
	return p
}

func (c *Cluster) nodeReady(ctx context.Context) error {
	node, err := c.Client.CoreV1().Nodes().Get(ctx, NodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("not ready: %v", node.Status.Conditions)
}

// kubeletConfig returns a configuration for a shared host: swap, a full disk and cgroups of version 1 do not stop the
// kubelet.
func (c *Cluster) kubeletConfig(socket string) string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://%s
port: %d
tlsCertFile: %s
tlsPrivateKeyFile: %s
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
authorization: {mode: Webhook}
staticPodPath: %s
podLogsDir: %s
fileCheckFrequency: 1s
syncFrequency: 2s
clusterDomain: cluster.local
clusterDNS: [10.96.0.10]
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /%s
cgroupsPerQOS: true
enforceNodeAllocatable: [pods]
makeIPTablesUtilChains: false
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, nodefs.inodesFree: 1%%, imagefs.available: 1%%}
imageGCHighThresholdPercent: 100
`, socket, kubeletPort, c.file("kubelet.crt"), c.file("kubelet.key"), c.file("ca.crt"), c.Manifests(), c.LogDir(), c.cgroup)
}

// unmountBelow unmounts everything that is mounted in a directory.
func unmountBelow(dir string) error {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	for i := len(mounts) - 1; i >= 0; i-- { // the last is on top
		err = errors.Join(err, unix.Unmount(mounts[i].Mountpoint, unix.MNT_DETACH))
	}
	return err
}

// Kubectl creates a directory with kubectl in it. It returns the directory, and the variable with the cluster's
// configuration.
func (c *Cluster) Kubectl(t testing.TB) (dir, env string) {
	t.Helper()
	dir = filepath.Join(c.Dir, "bin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\nexec %s kubectl \"$@\"\n", c.program)
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, "KUBECONFIG=" + c.Kubeconfig()
}

// Kubeconfig is the path of an administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.file("admin.conf") }

// Node returns the files that a node without a kubelet needs: its kubeconfig, and its serving certificate with the key.
func (c *Cluster) Node() (kubeconfig, cert, key string) {
	return c.file("kubelet.conf"), c.file("kubelet.crt"), c.file("kubelet.key")
}

// Bootstrap is the path of the kubeconfig with which a node without a certificate requests one.
func (c *Cluster) Bootstrap() string { return c.file("bootstrap.conf") }

// WaitNode waits until the node is ready.
func (c *Cluster) WaitNode(ctx context.Context, t testing.TB) {
	t.Helper()
	c.Wait(ctx, t, "the node to be ready", c.nodeReady)
}
