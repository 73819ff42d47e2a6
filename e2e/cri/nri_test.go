package cri

import (
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/nri/pkg/stub"
	"google.golang.org/grpc/codes"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/cri/nri"
	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// adjuster is an NRI plugin that gives each container a variable and a limit, and one container a host mount.
type adjuster struct{ synced, heard chan string }

func (a adjuster) Synchronize(_ context.Context, pods []*api.PodSandbox, all []*api.Container) ([]*api.ContainerUpdate, error) {
	text := "nothing"
	if len(pods) == 1 && len(all) == 1 {
		text = pods[0].GetName() + " " + all[0].GetName() + " " + all[0].GetState().String()
	}
	a.synced <- text
	return nil, nil
}

func (a adjuster) CreateContainer(
	_ context.Context, pod *api.PodSandbox, c *api.Container,
) (*api.ContainerAdjustment, []*api.ContainerUpdate, error) {
	adjust := &api.ContainerAdjustment{}
	adjust.AddEnv("PLUGIN", pod.GetName()+"/"+c.GetName())
	adjust.SetLinuxMemoryLimit(32 << 20)
	if c.GetName() == "bad" {
		adjust.AddMount(&api.Mount{Source: "/srv", Destination: "/srv", Type: "bind"})
	}
	return adjust, nil, nil
}

func (a adjuster) StopContainer(_ context.Context, _ *api.PodSandbox, c *api.Container) ([]*api.ContainerUpdate, error) {
	a.heard <- "stop " + c.GetName()
	return nil, nil
}

func (a adjuster) RemovePodSandbox(_ context.Context, pod *api.PodSandbox) error {
	a.heard <- "remove " + pod.GetName()
	return nil
}

// join registers the plugin and returns the pods and containers of its first synchronisation.
func (a adjuster) join(ctx context.Context, t *testing.T, socket string) (synced string) {
	t.Helper()
	s, err := stub.New(a, stub.WithPluginName("adjuster"), stub.WithPluginIdx("10"), stub.WithSocketPath(socket), stub.WithOnClose(func() {}))
	if err == nil {
		err = s.Start(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return a.next(ctx, t, a.synced)
}

func (a adjuster) next(ctx context.Context, t *testing.T, from chan string) string {
	t.Helper()
	select {
	case text := <-from:
		return text
	case <-ctx.Done():
		t.Fatal(ctx.Err())
	}
	return ""
}

// TestPlugins: an NRI plugin adjusts containers in VMs. Adjustments that need the host are refused by name. Each server
// synchronises the plugin.
func TestPlugins(t *testing.T) {
	n := newNode(t, enginetest.Clones)
	dir := t.TempDir()
	socket := filepath.Join(dir, "nri.sock")
	n.o.NRI = &nri.Options{Socket: socket, Dir: filepath.Join(dir, "plugins"), Conf: dir}
	end := n.serve(t)
	ctx := testdeadline.Context(t, 2*time.Minute)
	plugin := adjuster{synced: make(chan string, 1), heard: make(chan string, 9)}
	if synced := plugin.join(ctx, t, socket); synced != "nothing" {
		t.Errorf("synchronised with %s", synced)
	}
	config := critest.Pod("p")
	config.LogDirectory = n.logs
	pod := n.Run(ctx, t, config)
	id := n.Start(ctx, t, pod, critest.Container("c", "sleep", "1000"), config)
	const script = "echo $PLUGIN; cat /sys/fs/cgroup/memory.max"
	if got := n.Sh(ctx, t, id, script); got != "p/c\n33554432\n" {
		t.Errorf("the container has %q", got)
	}
	bad := critest.Container("bad", "true")
	_, err := n.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: bad, SandboxConfig: config})
	if expect(t, "a mount of the host", err, codes.Unimplemented); err == nil || !strings.Contains(err.Error(), "/srv") {
		t.Errorf("the reason is %v", err)
	}
	end()
	n.serve(t)
	if synced := plugin.join(ctx, t, socket); synced != "p c CONTAINER_RUNNING" {
		t.Errorf("synchronised with %s", synced)
	}
	n.Remove(ctx, t, pod)
	for _, want := range []string{"stop c", "remove p"} {
		if got := plugin.next(ctx, t, plugin.heard); got != want {
			t.Errorf("heard %s, want %s", got, want)
		}
	}
	n.nothingLeft(t)
}
