package engine_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/oci"
)

// until waits until is returns true.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for ctx := testdeadline.Context(t, 10*time.Second); !is(); runtime.Gosched() {
		if ctx.Err() != nil {
			t.Fatalf("%s: %v", what, context.Cause(ctx))
		}
	}
}

// podRequest returns a request without special wishes.
func podRequest(name string) engine.PodRequest {
	return engine.PodRequest{Key: "default/" + name, Identity: engine.Identity{Name: name, Namespace: "default", UID: "uid-" + name}}
}

// startContainer creates and starts a container of the test image.
func startContainer(ctx context.Context, t *testing.T, e *engine.Engine, pod, name string, args ...string) string {
	t.Helper()
	img, err := e.Images().Resolve(enginetest.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := oci.New("", args...)
	if err != nil {
		t.Fatal(err)
	}
	id, err := e.CreateContainer(ctx, pod, engine.ContainerRequest{
		Key: name + "/0", Name: name, Spec: spec, Root: containerv1.Image{ID: img.ID}, Stdio: containerv1.Discard{},
	})
	if err == nil {
		err = e.StartContainer(ctx, id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// output runs a command in a running container.
func output(
	ctx context.Context, e *engine.Engine, container string, cmd []string, timeout time.Duration,
) (stdout, stderr []byte, err error) {
	c, err := e.Running(container)
	if err != nil {
		return nil, nil, err
	}
	return c.Output(ctx, cmd, timeout)
}
