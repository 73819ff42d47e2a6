package testkube

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// etcd, apiServer, controllers and scheduler start the programs of the control plane.
func (c *Cluster) etcd(t testing.TB) {
	t.Helper()
	const clients, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	c.start(t, "etcd", "--name=etcd", "--data-dir="+filepath.Join(c.Dir, "etcd"), "--unsafe-no-fsync=true", "--log-level=warn",
		"--listen-client-urls="+clients, "--advertise-client-urls="+clients,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=etcd="+peers)
}

func (c *Cluster) apiServer(t testing.TB) {
	t.Helper()
	c.api = c.start(t, "kube-apiserver", "--etcd-servers=http://127.0.0.1:2379",
		"--bind-address=0.0.0.0", "--advertise-address="+NodeIP, fmt.Sprintf("--secure-port=%d", apiPort),
		"--endpoint-reconciler-type=none", "--enable-aggregator-routing=true", "--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--client-ca-file="+c.file("ca.crt"), "--tls-cert-file="+c.file("apiserver.crt"), "--tls-private-key-file="+c.file("apiserver.key"),
		"--kubelet-certificate-authority="+c.file("ca.crt"), "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate="+c.file("apiserver.crt"), "--kubelet-client-key="+c.file("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+c.file("service-accounts.key"), "--service-account-signing-key-file="+c.file("service-accounts.key"),
		"--requestheader-client-ca-file="+c.file("ca.crt"), "--requestheader-allowed-names=proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file="+c.file("proxy.crt"), "--proxy-client-key-file="+c.file("proxy.key"),
		"--cert-dir="+filepath.Join(c.Dir, "apiserver"))
}

// StopAPI kills the API server.
func (c *Cluster) StopAPI() { c.api.Kill() }

// StartAPI starts the API server again, until the end of that test.
func (c *Cluster) StartAPI(t testing.TB) {
	t.Helper()
	c.apiServer(t)
}

// WaitAPI waits until the API server answers.
func (c *Cluster) WaitAPI(ctx context.Context, t testing.TB) {
	t.Helper()
	c.Wait(ctx, t, "the API server to be ready", func(ctx context.Context) error {
		_, err := c.Client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	})
}

func (c *Cluster) controllers(t testing.TB) {
	t.Helper()
	conf := c.file("controllers.conf")
	c.start(t, "kube-controller-manager", "--kubeconfig="+conf,
		"--authentication-kubeconfig="+conf, "--authorization-kubeconfig="+conf, "--bind-address=127.0.0.1",
		"--tls-cert-file="+c.file("controllers.crt"), "--tls-private-key-file="+c.file("controllers.key"),
		"--leader-elect=false", "--use-service-account-credentials=true",
		"--service-account-private-key-file="+c.file("service-accounts.key"), "--root-ca-file="+c.file("ca.crt"),
		"--cluster-signing-cert-file="+c.file("ca.crt"), "--cluster-signing-key-file="+c.file("ca.key"),
		"--allocate-node-cidrs=true", "--cluster-cidr=10.88.0.0/16", "--service-cluster-ip-range=10.96.0.0/16")
}

func (c *Cluster) scheduler(t testing.TB) {
	t.Helper()
	conf := c.file("scheduler.conf")
	c.start(t, "kube-scheduler", "--kubeconfig="+conf,
		"--authentication-kubeconfig="+conf, "--authorization-kubeconfig="+conf, "--bind-address=127.0.0.1",
		"--tls-cert-file="+c.file("scheduler.crt"), "--tls-private-key-file="+c.file("scheduler.key"), "--leader-elect=false")
}

// start starts one of Kubernetes' programs, which is killed at the test's end.
func (c *Cluster) start(t testing.TB, program string, args ...string) *Process {
	t.Helper()
	return c.Run(t, program, exec.Command(c.program, append([]string{program}, args...)...))
}
