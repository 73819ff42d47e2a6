package cri

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/ociimage"
	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testgo"
	"github.com/bulkhead-project/bulkhead/internal/test/testimage"
	"github.com/bulkhead-project/bulkhead/volume/atomicdir"
)

// updates: a Secret that the kubelet rewrites appears in the container within two seconds, and a program that watches
// it is notified.
func updates(ctx context.Context, t *testing.T, n *node) {
	config := critest.Pod("updates")
	dir := filepath.Join(n.o.Kubelet, "pods", config.Metadata.Uid, "volumes", "kubernetes.io~secret", "s")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	write := func(text string) {
		t.Helper()
		if _, err := atomicdir.Write(root, []atomicdir.File{{Path: "key", Mode: 0o400, Data: []byte(text)}}); err != nil {
			t.Fatal(err)
		}
	}
	write("old")
	pod := n.podOf(ctx, t, config)
	ref := n.watcher(ctx, t)
	id := n.Start(ctx, t, pod, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "watcher"}, Image: &runtimeapi.ImageSpec{Image: ref},
		Command: []string{"/watch", "/s", "..data"}, LogPath: "watcher.log",
		Mounts: []*runtimeapi.Mount{{ContainerPath: "/s", HostPath: dir, Readonly: true}},
		Linux:  &runtimeapi.LinuxContainerConfig{},
	}, config)
	// This container outlives the watcher.
	reader := n.sleeper(ctx, t, pod, "reader", config, func(c *runtimeapi.ContainerConfig) {
		c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/s", HostPath: dir, Readonly: true}}
	})
	log := filepath.Join(config.LogDirectory, "watcher.log")
	for {
		if text, _ := os.ReadFile(log); strings.Contains(string(text), "watching") {
			break
		}
		pause(ctx, t)
	}
	if was := n.Sh(ctx, t, reader, "cat /s/key"); was != "old" {
		t.Fatalf("before: %q", was)
	}
	write("new")
	soon := testdeadline.Context(t, 2*time.Second)
	for began := time.Now(); ; pause(soon, t) {
		if n.Sh(ctx, t, reader, "cat /s/key") == "new" {
			t.Logf("the secret was new after %v", time.Since(began))
			break
		}
	}
	if st := n.ended(ctx, t, id); st.GetExitCode() != 0 {
		text, _ := os.ReadFile(log)
		t.Errorf("the watcher: %v\n%s", st, text)
	}
}

// watcher pulls an image with testdata/watch and returns its name.
func (n *node) watcher(ctx context.Context, t *testing.T) string {
	t.Helper()
	registries(t)
	program := filepath.Join(t.TempDir(), "watch")
	build := testgo.Command(ctx, "build", "-o", program, "./testdata/watch")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	body, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	img := testimage.Image(t, v1.Config{}, []ociimage.Entry{ociimage.File("watch", 0o755, string(body))})
	ref, _ := testimage.Registry(t).Push(t, "watch:1", img)
	if _, err := n.Images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}); err != nil {
		t.Fatal(err)
	}
	return ref
}
