package engine_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/engine/store"
	"github.com/bulkhead-project/bulkhead/internal/errclass/grpccode"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/oci"
)

// containerRequest returns a request for a container of the test image.
func containerRequest(t *testing.T, e *engine.Engine) engine.ContainerRequest {
	t.Helper()
	img, err := e.Images().Resolve(enginetest.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := oci.New("", "true")
	if err != nil {
		t.Fatal(err)
	}
	return engine.ContainerRequest{
		Key: "c/0", Name: "c", Spec: spec, Root: containerv1.Image{ID: img.ID}, Stdio: containerv1.Discard{},
	}
}

// TestCreateFails checks that a failed creation returns an error, leaves nothing, and can be repeated.
func TestCreateFails(t *testing.T) {
	t.Parallel()
	nothing := func() {}
	for _, tc := range []struct {
		name string
		do   func(d *disks, pod string, r *engine.ContainerRequest) (mend func())
		want codes.Code
		says string
	}{
		{
			name: "no request", want: codes.InvalidArgument, says: "needs a key",
			do: func(_ *disks, _ string, r *engine.ContainerRequest) func() { r.Key = ""; return nothing },
		},
		{
			name: "last words elsewhere", want: codes.InvalidArgument, says: "termination message",
			do: func(_ *disks, _ string, r *engine.ContainerRequest) func() {
				r.Termination = &store.Termination{Host: "/nowhere/words"}
				return nothing
			},
		},
		{
			name: "no files", want: codes.InvalidArgument, says: "nowhere",
			do: func(_ *disks, _ string, r *engine.ContainerRequest) func() {
				r.Files = []store.Files{{Name: "v", Dir: "/nowhere/files"}}
				return nothing
			},
		},
		{
			name: "no record", want: codes.Unknown, says: "store container",
			do: func(d *disks, pod string, _ *engine.ContainerRequest) func() {
				return spoil(d.t, filepath.Join(d.o.Roots.Sandboxes(), pod, "containers"))
			},
		},
		{
			name: "no emptyDir", want: codes.Unknown, says: "pod.json",
			do: func(d *disks, pod string, r *engine.ContainerRequest) func() {
				r.Mounts = append(r.Mounts, emptyDir(containerv1.Disk))
				return spoil(d.t, filepath.Join(d.o.Roots.Sandboxes(), pod, "pod.json"))
			},
		},
		{
			name: "no image", want: codes.NotFound,
			do: func(_ *disks, _ string, r *engine.ContainerRequest) func() {
				r.Root = containerv1.Image{ID: "sha256:" + strings.Repeat("0", 64)}
				return nothing
			},
		},
		{
			name: "no bundle", want: codes.Unknown, says: "write the bundle",
			do: func(d *disks, pod string, _ *engine.ContainerRequest) func() { return spoil(d.t, d.e.StateDir(pod)) },
		},
		{
			name: "no disk", want: codes.Unknown, says: "send the image's disk",
			do: func(d *disks, _ string, _ *engine.ContainerRequest) func() {
				d.w.Once("SendFile", enginetest.ErrInjected)
				return nothing
			},
		},
		{
			name: "no log", want: codes.InvalidArgument, says: "open the log",
			do: func(_ *disks, _ string, r *engine.ContainerRequest) func() {
				r.Stdio = containerv1.Log{File: "/nowhere/log"}
				return nothing
			},
		},
		{
			name: "no container, nor a guest that forgets it", want: codes.Unknown, says: "undo task: other",
			do: func(d *disks, _ string, _ *engine.ContainerRequest) func() {
				d.w.Once("Create", enginetest.ErrInjected)
				d.w.Once("Delete", errors.New("other"))
				return nothing
			},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDisks(t)
			pod := d.start(podRequest("p"))
			good, r := containerRequest(t, d.e), containerRequest(t, d.e)
			mend := tc.do(d, pod, &r)
			id, err := d.e.CreateContainer(t.Context(), pod, r)
			mend()
			if err == nil || id != "" || grpccode.Of(err) != tc.want || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: %v: %v", id, grpccode.Of(err), err)
			}
			records, err := os.ReadDir(filepath.Join(d.o.Roots.Sandboxes(), pod, "containers"))
			if len(records) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Errorf("left %v, %v", records, err)
			}
			if id, err = d.e.CreateContainer(t.Context(), pod, good); err != nil || id == "" {
				t.Errorf("once more: %q, %v", id, err)
			}
		})
	}
}

// TestCreateTwice checks that a second request gets the id of a created container, and an error after its start.
func TestCreateTwice(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	pod := d.start(podRequest("p"))
	r := containerRequest(t, d.e)
	id, err := d.e.CreateContainer(t.Context(), pod, r)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := d.e.CreateContainer(t.Context(), pod, r); err != nil || again != id {
		t.Errorf("created: %s, %v", again, err)
	}
	if err := d.e.StartContainer(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if again, err := d.e.CreateContainer(t.Context(), pod, r); grpccode.Of(err) != codes.AlreadyExists {
		t.Errorf("started: %s, %v", again, err)
	}
	if err := d.e.StopPod(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	again, err := d.e.StartPod(t.Context(), podRequest("p"))
	if grpccode.Of(err) != codes.AlreadyExists || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("pod with the same name: %s, %v", again, err)
	}
}

// TestCreateInADyingPod checks that a creation fails if the VM ended meanwhile.
func TestCreateInADyingPod(t *testing.T) {
	t.Parallel()
	d := newDisks(t)
	pod := d.start(podRequest("p"))
	release := d.w.Block("Create")
	r := containerRequest(t, d.e)
	made := make(chan error, 1)
	go func() {
		_, err := d.e.CreateContainer(context.WithoutCancel(t.Context()), pod, r)
		made <- err
	}()
	d.called("Create")
	d.w.Shim(d.e.StateDir(pod)).EndVM("it ended")
	until(t, "the pod's end", func() bool { p, err := d.e.Pod(pod); return err == nil && !p.Ready })
	release()
	if err := <-made; grpccode.Of(err) != codes.FailedPrecondition {
		t.Errorf("%v", err)
	}
	if p, err := d.e.Pod(pod); err != nil || len(p.Containers) > 0 {
		t.Errorf("%+v, %v", p.Containers, err)
	}
}
