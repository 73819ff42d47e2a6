package cri

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/testdeadline"
)

func TestMain(m *testing.M) {
	code := m.Run()
	enginetest.RemoveBuilt()
	os.Exit(code)
}

// doorOptions are those of a door over an engine of o.
func doorOptions(o engine.Options) Options {
	return Options{
		Roots: o.Roots, Socket: filepath.Join(o.Roots.State, "cri.sock"), Logs: o.HostPaths, Engine: o, Logger: o.Logger,
	}
}

// fakeOptions are those of a door over an engine in w that has the test image.
func fakeOptions(t testing.TB, w *enginetest.World) Options {
	t.Helper()
	o := enginetest.Options(t, enginetest.Roots(t))
	enginetest.LoadImage(t, o.Images)
	return doorOptions(w.In(o))
}

// client is a kubelet's end of the socket.
type client struct {
	runtimeapi.RuntimeServiceClient
	images runtimeapi.ImageServiceClient
}

// serveDoor runs a door until the end of the test.
func serveDoor(t testing.TB, o Options) client {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- Run(ctx, o, func() { close(ready) }) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("the door has ended with %v", err)
			}
		case <-time.After(testdeadline.For(time.Minute)):
			t.Error("the door does not end")
		}
	})
	return dial(t, o.Socket)
}

func dial(t testing.TB, socket string) client {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return client{runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)}
}

func (c client) run(ctx context.Context, t testing.TB, config *runtimeapi.PodSandboxConfig) string {
	t.Helper()
	res, err := c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return res.GetPodSandboxId()
}

// start makes a container in a pod and starts it.
func (c client) start(
	ctx context.Context, t testing.TB, pod string, container *runtimeapi.ContainerConfig, config *runtimeapi.PodSandboxConfig,
) string {
	t.Helper()
	res, err := c.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: pod, Config: container, SandboxConfig: config})
	if err == nil {
		_, err = c.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: res.GetContainerId()})
	}
	if err != nil {
		t.Fatal(err)
	}
	return res.GetContainerId()
}

func podConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}
}

func containerConfig(name string, command ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: enginetest.Busybox},
		Command:  command, LogPath: name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{},
	}
}
