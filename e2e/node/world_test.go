// Package node tests `bulkhead node` with a released control plane. All tests share one cluster with one node, which
// has no kubelet.
package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testfaults"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testtemplate"
)

func TestMain(m *testing.M) { os.Exit(testnet.Alone(m)) }

// world is a cluster with a Bulkhead node.
type world struct {
	*testkube.Cluster
	top    *testing.T // the world ends with this test
	image  string     // busybox
	second string     // the same image by another name
	user   testkube.User
	// registry serves those images.
	registry *testimage.Server
	node     *testkube.Process
	// silence receives the output of the command of startSilence.
	silence <-chan string
	// containerd is the socket of the pods' runtime, or "" for the node's own.
	containerd string
	// thresholds are the eviction thresholds. If there are none, the node gets thresholds that no host reaches. bus is the
	// address of the system message bus, or "" for the host's.
	thresholds []string
	bus        string
	// libexec is the directory of the programs. faults receives their fault points, if they have any.
	libexec string
	faults  *testfaults.Faults
}

// newWorld starts the cluster and the node, and waits until the node is ready.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := newControlPlane(t)
	w.startNode(t)
	return w
}

// newControlPlane starts the cluster without the node.
func newControlPlane(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	w := &world{Cluster: testkube.Start(t), top: t, libexec: bin()}
	w.user = w.User(t)
	w.prepare(t)
	return w
}

// startNode starts the node and waits until it is ready.
func (w *world) startNode(t *testing.T) {
	t.Helper()
	testtemplate.Share(w.top, w.Dir, dirs.Roots{Data: w.data(), State: filepath.Join(w.Dir, "s")})
	w.serve()
	w.up(testdeadline.Context(t, time.Minute), t)
}

// up waits until the node is ready and pods can be created.
func (w *world) up(ctx context.Context, t *testing.T) {
	t.Helper()
	w.WaitNode(ctx, t)
	w.Wait(ctx, t, "the namespace's service account", func(ctx context.Context) error {
		_, err := w.Client.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// prepare creates the node's files and directories.
func (w *world) prepare(t *testing.T) {
	t.Helper()
	registry := testimage.Registry(t)
	w.registry = registry
	w.image, _ = registry.Push(t, "busybox:1", testimage.BusyboxImage(t))
	w.second, _ = registry.Push(t, "busybox:2", testimage.BusyboxImage(t))
	conf := fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", registry.Host)
	if err := os.WriteFile(w.registries(), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{w.networks(), w.Manifests()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	testnet.WriteBridge(t, w.networks(), filepath.Join(w.Dir, "leases"))
}

func (w *world) registries() string { return filepath.Join(w.Dir, "registries.conf") }
func (w *world) networks() string   { return filepath.Join(w.Dir, "n") }
func (w *world) data() string       { return filepath.Join(w.Dir, "d") }

// bin returns the directory of the built programs.
func bin() string {
	if dir := os.Getenv("BULKHEAD_LIBEXEC"); dir != "" {
		return dir
	}
	dir, _ := filepath.Abs(filepath.Join("..", "..", "bin"))
	return dir
}

// serve starts the node.
func (w *world) serve() {
	w.serveAs(w.command(""))
}

// serveAs starts the node with a given command.
func (w *world) serveAs(cmd *exec.Cmd) {
	w.node = w.Run(w.top, "node", cmd)
	w.top.Cleanup(w.end) // before it is killed
}

// command returns the command of the node, or of another node with that name.
func (w *world) command(name string) *exec.Cmd {
	kubeconfig, cert, key := w.Node()
	if name == "" {
		name = testkube.NodeName
	}
	flag := "--cluster-dns"
	if w.containerd != "" {
		flag = "--cri-endpoint"
	}
	flags := w.documentedNode(w.top, flag, kubeconfig)
	return w.with(name, append(flags, "--tls-cert-file", cert, "--tls-private-key-file", key)...)
}

// with returns the command of a node with the flags for its API access and addresses.
func (w *world) with(name string, flags ...string) *exec.Cmd {
	return w.program(append([]string{"--node-name", name, "--node-ip", testkube.NodeIP,
		"--node-label", "test=yes", "--node-label", "disk=ssd", "--register-with-taint", "vm=only:PreferNoSchedule"}, flags...)...)
}

// program returns the command with those flags and the flags that every node needs.
func (w *world) program(flags ...string) *exec.Cmd {
	args := append([]string{"node", "--cni-conf-dir", w.networks(), "--manifests", w.Manifests(), "--root-dir", w.KubeletRoot()}, flags...)
	if w.thresholds == nil {
		args = append(args, "--eviction-hard", "memory.available<1Mi") // however little the host has left
	}
	for _, one := range w.thresholds {
		args = append(args, "--eviction-hard", one)
	}
	if w.containerd != "" && !slices.Contains(flags, "--cri-endpoint") {
		args = append(args, "--cri-endpoint", "unix://"+w.containerd)
	}
	cmd := exec.Command(filepath.Join(w.libexec, "bulkhead"), args...)
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.Dir, "BULKHEAD_LIBEXEC=" + w.libexec, "BULKHEAD_GUEST=" + testfaults.Guest(),
		"BULKHEAD_DATA=" + w.data(), "BULKHEAD_STATE=" + filepath.Join(w.Dir, "s"),
		"CONTAINERS_REGISTRIES_CONF=" + w.registries(),
	}
	if w.bus != "" {
		cmd.Env = append(cmd.Env, "DBUS_SYSTEM_BUS_ADDRESS="+w.bus)
	}
	if w.faults != nil {
		cmd.Env = append(cmd.Env, fault.Env+"="+w.faults.Path)
	}
	return cmd
}

// end deletes all pods, stops the node, and checks that nothing is left.
func (w *world) end() {
	t := w.top
	if w.node == nil {
		return // another call has ended it
	}
	defer func() { w.node = nil }()
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(time.Minute))
	defer cancel()
	w.removeManifests(t)
	err := w.Client.CoreV1().Pods(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Errorf("delete the pods: %v", err)
	}
	w.Wait(ctx, t, "the pods to be gone", func(ctx context.Context) error {
		list, err := w.Client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err == nil && len(list.Items) > 0 {
			err = fmt.Errorf("%d are left, such as %s: %s", len(list.Items), list.Items[0].Name, &list.Items[0].Status)
		}
		return err
	})
	w.node.Stop(t)
	w.count(t)
}

// count fails the test if pods have left anything.
func (w *world) count(t *testing.T) {
	t.Helper()
	all := []string{"sandboxes", "node/pods", "names/node"}
	if w.containerd != "" {
		all = all[1:2]
	}
	for _, dir := range all {
		left, err := os.ReadDir(filepath.Join(w.data(), dir))
		if err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", dir, left, err)
		}
	}
}
