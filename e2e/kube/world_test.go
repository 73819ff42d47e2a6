// Package kube tests `bulkhead cri` with a released kubelet and control plane. All tests share one cluster with one
// node.
package kube

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/internal/test/testkube"
	"github.com/bulkhead-project/bulkhead/internal/test/testnet"
	"github.com/bulkhead-project/bulkhead/internal/test/testtemplate"
)

func TestMain(m *testing.M) { os.Exit(testnet.Alone(m)) }

// world is a cluster with a node that uses Bulkhead.
type world struct {
	*testkube.Cluster
	top          *testing.T // the world ends with this test
	registry     *testimage.Server
	image        string // busybox
	user         testkube.User
	cri, kubelet *testkube.Process
}

// newWorld starts the cluster and waits until the node is ready.
func newWorld(t *testing.T) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("boots virtual machines; make test runs it in its second pass")
	}
	w := &world{Cluster: testkube.Start(t), top: t}
	w.user = w.User(t)
	w.serveImages(t)
	if err := os.Mkdir(w.networks(), 0o755); err != nil {
		t.Fatal(err)
	}
	testnet.WriteBridge(t, w.networks(), filepath.Join(w.Dir, "leases"))
	testtemplate.Share(t, w.Dir, dirs.Roots{Data: filepath.Join(w.Dir, "d"), State: w.state()})
	w.serveCRI(t)
	w.kubelet = w.StartKubelet(t, w.socket())
	serviceAccount(t, w.Cluster)
	return w
}

// serveImages starts a registry.
func (w *world) serveImages(t *testing.T) {
	t.Helper()
	w.registry = testimage.Registry(t)
	w.image, _ = w.registry.Push(t, "busybox:1", testimage.BusyboxImage(t))
	conf := fmt.Sprintf("[[registry]]\nlocation = %q\ninsecure = true\n", w.registry.Host)
	if err := os.WriteFile(w.registries(), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (w *world) registries() string { return filepath.Join(w.Dir, "registries.conf") }
func (w *world) networks() string   { return filepath.Join(w.Dir, "n") }
func (w *world) state() string      { return filepath.Join(w.Dir, "s") }
func (w *world) socket() string     { return filepath.Join(w.Dir, "c.sock") }

// bin returns the directory of the built programs.
func bin() string {
	if dir := os.Getenv("BULKHEAD_LIBEXEC"); dir != "" {
		return dir
	}
	dir, _ := filepath.Abs(filepath.Join("..", "..", "bin"))
	return dir
}

// serveCRI starts the server and waits until it answers.
func (w *world) serveCRI(t *testing.T) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin(), "bulkhead"), "cri", "--listen", "unix://"+w.socket(),
		"--kubelet-root", w.KubeletRoot(), "--log-dir", w.LogDir(), "--cni-conf-dir", w.networks())
	guest := os.Getenv("BULKHEAD_GUEST")
	if guest == "" {
		guest = filepath.Join(bin(), "guest")
	}
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + w.Dir, "BULKHEAD_LIBEXEC=" + bin(), "BULKHEAD_GUEST=" + guest,
		"BULKHEAD_DATA=" + filepath.Join(w.Dir, "d"), "BULKHEAD_STATE=" + w.state(),
		"CONTAINERS_REGISTRIES_CONF=" + w.registries(),
	}
	w.cri = w.Run(w.top, "cri", cmd)
	w.top.Cleanup(w.end) // before it is killed
	w.Wait(testdeadline.Context(t, 30*time.Second), t, "the CRI to be served", func(ctx context.Context) error {
		_, err := w.runtime(t).Version(ctx, &runtimeapi.VersionRequest{})
		return err
	})
}

// end removes all pods and stops the server, after the kubelet has ended.
func (w *world) end() {
	t := w.top
	if w.cri == nil {
		return // another call has ended it
	}
	ctx, cancel := context.WithTimeout(context.Background(), testdeadline.For(time.Minute))
	defer cancel()
	c := w.runtime(t)
	pods, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Errorf("list the pods: %v", err)
	}
	for _, pod := range pods.GetItems() {
		if _, err := c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod.GetId()}); err != nil {
			t.Errorf("remove pod %s: %v", pod.GetMetadata().GetName(), err)
		}
	}
	w.cri.Stop(t)
	w.cri = nil
}
