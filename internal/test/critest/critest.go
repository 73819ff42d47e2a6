// Package critest is a CRI client for tests.
package critest

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Busybox is the image of the containers. Package enginetest loads it.
const Busybox = "localhost/busybox:test"

// Client is a client of both services.
type Client struct {
	runtimeapi.RuntimeServiceClient
	Images runtimeapi.ImageServiceClient
}

// Dial returns a client of a socket. The socket need not be served yet.
func Dial(t testing.TB, socket string) Client {
	t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)), // the kubelet's limit
		// Retry fast, so that a server that is just starting is found at once.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: time.Second}, MinConnectTimeout: 20 * time.Second,
		}),
		grpc.WithContextDialer(func(ctx context.Context, path string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return Client{runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)}
}

// Run runs a pod.
func (c Client) Run(ctx context.Context, t testing.TB, config *runtimeapi.PodSandboxConfig) string {
	t.Helper()
	res, err := c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	return res.GetPodSandboxId()
}

// Start creates and starts a container in a pod.
func (c Client) Start(
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

// Sh runs a script in a container and returns its stdout. It fails the test if the script fails.
func (c Client) Sh(ctx context.Context, t testing.TB, container, script string) string {
	t.Helper()
	res, err := c.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: container, Cmd: []string{"sh", "-c", script}})
	if err != nil || res.GetExitCode() != 0 {
		t.Fatalf("%s: %v, %v", script, res, err)
	}
	return string(res.GetStdout())
}

// Remove stops and removes a pod.
func (c Client) Remove(ctx context.Context, t testing.TB, pod string) {
	t.Helper()
	_, err := c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: pod})
	if err == nil {
		_, err = c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: pod})
	}
	if err != nil {
		t.Error(err)
	}
}

// Pod returns a pod's configuration.
func Pod(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}
}

// Container returns the configuration of a container with the test image. It has its own process namespace, as a
// kubelet's containers do.
func Container(name string, command ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: Busybox},
		Command:  command, LogPath: name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}
