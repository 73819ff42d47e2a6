package cri

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/flock"
	"github.com/bulkhead-project/bulkhead/internal/test/critest"
	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
)

// TestCodes checks the codes that CRI clients act on, and that calls that end or remove something may be repeated.
func TestCodes(t *testing.T) {
	ctx := testdeadline.Context(t, 30*time.Second)
	c := serveDoor(t, fakeOptions(t, enginetest.New()))
	for name, tc := range map[string]struct {
		call func() error
		code codes.Code
	}{
		"stop of a missing pod": {
			call: func() error {
				_, err := c.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: "none"})
				return err
			},
		},
		"removal of a missing pod": {
			call: func() error {
				_, err := c.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "none"})
				return err
			},
		},
		"stop of a missing container": {
			call: func() error {
				_, err := c.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: "none"})
				return err
			},
		},
		"removal of a missing container": {
			call: func() error {
				_, err := c.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: "none"})
				return err
			},
		},
		"removal of a missing image": {
			call: func() error {
				_, err := c.Images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: "none:1"}})
				return err
			},
		},
		"status of a missing pod": {
			call: func() error {
				_, err := c.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: "none"})
				return err
			},
			code: codes.NotFound,
		},
		"exec in a missing container": {
			call: func() error {
				_, err := c.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: "none", Cmd: []string{"sh"}, Stdout: true})
				return err
			},
			code: codes.NotFound,
		},
		"port-forward to a missing pod": {
			call: func() error {
				_, err := c.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: "none", Port: []int32{80}})
				return err
			},
			code: codes.NotFound,
		},
		"a pod without a name": {
			call: func() error {
				_, err := c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: &runtimeapi.PodSandboxConfig{}})
				return err
			},
			code: codes.InvalidArgument,
		},
		"an unknown runtime handler": {
			call: func() error {
				_, err := c.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: critest.Pod("p"), RuntimeHandler: "runc"})
				return err
			},
			code: codes.InvalidArgument,
		},
		"a checkpoint": {
			call: func() error {
				_, err := c.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: "none"})
				return err
			},
			code: codes.Unimplemented,
		},
	} {
		if err := tc.call(); status.Code(err) != tc.code || strings.Contains(status.Convert(err).Message(), "rpc error") {
			t.Errorf("%s: %v, want %v", name, err, tc.code)
		}
	}
}

// TestLists checks lists in one message and in parts.
func TestLists(t *testing.T) {
	ctx := testdeadline.Context(t, 30*time.Second)
	c := serveDoor(t, fakeOptions(t, enginetest.New()))
	pod := c.Run(ctx, t, critest.Pod("p"))
	container := c.Start(ctx, t, pod, critest.Container("c", "sh"), critest.Pod("p"))

	pods, err := c.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.GetItems()) != 1 || pods.GetItems()[0].GetId() != pod {
		t.Errorf("pods: %v, %v", pods, err)
	}
	streamed, err := c.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{})
	if got := parts(t, streamed, err); len(got) != 1 || got[0].GetPodSandboxes()[0].GetId() != pod {
		t.Errorf("pods in parts: %v", got)
	}
	containers, err := c.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
	if got := parts(t, containers, err); len(got) != 1 || got[0].GetContainers()[0].GetId() != container {
		t.Errorf("containers in parts: %v", got)
	}
	none, err := c.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{Filter: &runtimeapi.ContainerFilter{Id: "none"}})
	if got := parts(t, none, err); len(got) != 0 {
		t.Errorf("an empty list in parts: %v", got)
	}
	images, err := c.Images.StreamImages(ctx, &runtimeapi.StreamImagesRequest{})
	if got := parts(t, images, err); len(got) != 1 || got[0].GetImages()[0].GetRepoTags()[0] != enginetest.Busybox {
		t.Errorf("images in parts: %v", got)
	}
	st, err := c.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil || !st.GetStatus().GetConditions()[0].GetStatus() || st.GetInfo()["config"] == "" {
		t.Errorf("status: %v, %v", st, err)
	}
}

// parts returns all messages of a stream.
func parts[T any](t *testing.T, s grpc.ServerStreamingClient[T], err error) (all []*T) {
	t.Helper()
	for err == nil {
		var one *T
		if one, err = s.Recv(); err == nil {
			all = append(all, one)
		}
	}
	if !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	return all
}

// TestEach: no part is larger than allowed.
func TestEach(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]int{0: nil, 1: {1}, part: {part}, 2*part + 3: {part, part, 3}} {
		var got []int
		err := each(make([]int, n), nil, func(p []int) error { got = append(got, len(p)); return nil })
		if err != nil || len(got) != len(want) {
			t.Errorf("%d items: parts of %v, want %v: %v", n, got, want, err)
		}
	}
	if err := each([]int{1}, io.ErrClosedPipe, func([]int) error { panic("sent") }); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("a failed list: %v", err)
	}
}

// TestEvents: a client receives events, and the door stops despite the open subscription.
func TestEvents(t *testing.T) {
	ctx := testdeadline.Context(t, 30*time.Second)
	c := serveDoor(t, fakeOptions(t, enginetest.New()))
	events, err := c.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := events.Header(); err != nil {
		t.Fatal(err)
	}
	pod := c.Run(ctx, t, critest.Pod("p"))
	e, err := events.Recv()
	if err != nil || e.GetContainerId() != pod || e.GetContainerEventType() != runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT {
		t.Errorf("event %v, %v", e, err)
	}
}

// TestOneDoor: a second door with the same state directory does not serve.
func TestOneDoor(t *testing.T) {
	o := fakeOptions(t, enginetest.New())
	serveDoor(t, o)
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(30*time.Second))
	defer cancel()
	if err := Run(ctx, o, func() { t.Error("it serves") }); !errors.Is(err, flock.ErrLocked) {
		t.Errorf("a second door: %v", err)
	}
}
