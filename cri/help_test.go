package cri

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/guest"
	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/testimage"
	"github.com/bulkhead-project/bulkhead/network"
)

const busybox = "localhost/busybox:test"

var programDir string

func TestMain(m *testing.M) {
	var err error
	if programDir, err = os.MkdirTemp("", "bk-cri"); err != nil {
		panic(err)
	}
	code := m.Run()
	os.RemoveAll(programDir)
	os.Exit(code)
}

var buildShim = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programDir, "bulkhead-shim")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", path, "../cmd/bulkhead-shim")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return path, cmd.Run()
})

// loadImage has a store hold the test image.
func loadImage(t testing.TB, images *image.Store) {
	t.Helper()
	_, err := images.Load(t.Context(), "oci:"+testimage.Busybox(t), busybox, image.PullOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// testRoots are roots whose state is a short path.
func testRoots(t testing.TB) dirs.Roots {
	t.Helper()
	root, err := os.MkdirTemp("", "bk")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(root) })
	if err := os.Chmod(root, 0o711); err != nil {
		t.Fatal(err)
	}
	return dirs.Roots{Data: filepath.Join(root, "d"), State: filepath.Join(root, "s")}
}

// testOptions are those of an engine without a network of its own.
func testOptions(t testing.TB, roots dirs.Roots) Options {
	t.Helper()
	if err := roots.Ensure(); err != nil {
		t.Fatal(err)
	}
	images, err := image.Open(roots, "test")
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Roots: roots, Instance: "test", Images: images, Pool: noPool, DefaultNetwork: network.KindNone,
		Network:   func(network.Kind) (network.Provider, error) { return network.None{}, nil },
		HostPaths: []string{os.TempDir()}, Internal: true,
		Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// realOptions are those of an engine with real machines.
func realOptions(t testing.TB, roots dirs.Roots) Options {
	t.Helper()
	o := testOptions(t, roots)
	dir := os.Getenv("BULKHEAD_GUEST")
	if dir == "" {
		dir = "../bin/guest"
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		t.Fatal(err)
	}
	if o.Guest, err = guest.Load(dir); err != nil {
		t.Fatalf("this test needs the guest bundle (make guest): %v", err)
	}
	if o.Shim, err = buildShim(); err != nil {
		t.Fatalf("build bulkhead-shim: %v", err)
	}
	o.Accel = hypervisor.TCG
	return o
}

// noPool is for an engine that starts each pod's machine when it is asked for.
const noPool = -1

// realEngine starts an engine with real machines, so many of them ahead, that has
// the test image. Another one can be started with the same options.
func realEngine(t testing.TB, pool int) (*Service, Options) {
	t.Helper()
	o := realOptions(t, testRoots(t))
	o.Pool = pool
	loadImage(t, o.Images)
	return engine(t, o), o
}

// engine starts an engine that ends with the test.
func engine(t testing.TB, o Options) *Service {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := New(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			t.Errorf("close the engine: %v", err)
		}
	})
	return s
}

// startContainer makes a container in a pod and starts it.
func startContainer(ctx context.Context, t testing.TB, s *Service, pod string, c *runtimeapi.ContainerConfig, config *runtimeapi.PodSandboxConfig) string {
	t.Helper()
	id, err := s.CreateContainer(ctx, pod, c, config)
	if err == nil {
		err = s.StartContainer(ctx, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func podConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Labels:   map[string]string{"app": name},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{},
	}
}

func containerConfig(name string, command ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name},
		Image:    &runtimeapi.ImageSpec{Image: busybox},
		Command:  command, LogPath: name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{},
	}
}
