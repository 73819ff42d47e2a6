package cri

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/test/enginetest"
)

// TestCallsOfLittle: a call without required arguments returns InvalidArgument and creates no object.
func TestCallsOfLittle(t *testing.T) {
	w, s, pod, _ := fakePodOf(t)
	ctx := t.Context()
	run := func(c *runtimeapi.PodSandboxConfig) error {
		_, err := s.RunPodSandbox(ctx, c, "")
		return err
	}
	create := func(c *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) error {
		_, err := s.CreateContainer(ctx, pod, c, sandbox)
		return err
	}
	pull := func(i *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) error {
		_, err := s.PullImage(ctx, i, nil, sandbox)
		return err
	}
	named := &runtimeapi.ContainerMetadata{Name: "main"}
	noName := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{}}
	noImage := &runtimeapi.ContainerConfig{Metadata: named, Image: &runtimeapi.ImageSpec{}}
	for name, call := range map[string]func() error{
		"a pod of nothing":             func() error { return run(nil) },
		"a pod without metadata":       func() error { return run(&runtimeapi.PodSandboxConfig{}) },
		"a pod of empty metadata":      func() error { return run(noName) },
		"a container of nothing":       func() error { return create(nil, nil) },
		"a container without metadata": func() error { return create(&runtimeapi.ContainerConfig{}, podConfig("p")) },
		"a container without a name": func() error {
			return create(&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{}}, nil)
		},
		"a container without an image":  func() error { return create(&runtimeapi.ContainerConfig{Metadata: named}, nil) },
		"a container of an empty image": func() error { return create(noImage, nil) },
		"a pull of nothing":             func() error { return pull(nil, nil) },
		"a pull without a name":         func() error { return pull(&runtimeapi.ImageSpec{}, podConfig("p")) },
		"the status of no image": func() error {
			_, err := s.ImageStatus(ctx, nil, true)
			return err
		},
		"the removal of no image": func() error { return s.RemoveImage(ctx, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := call(); status.Code(err) != codes.InvalidArgument {
				t.Errorf("%v (%v), want %v", err, status.Code(err), codes.InvalidArgument)
			}
		})
	}
	if list, err := s.ListContainers(ctx, nil); err != nil || len(list) > 0 {
		t.Errorf("containers: %v, %v", list, err)
	}
	if list, err := s.ListPodSandbox(ctx, nil); err != nil || len(list) != 1 {
		t.Errorf("pods: %v, %v", list, err)
	}
	if err := s.RemovePodSandbox(ctx, pod); err != nil {
		t.Error(err)
	}
	enginetest.NothingLeft(t, s.o)
	w.Clean(t)
}

// TestContainerOfLittle: a name and an image are enough for a container. The image provides the rest.
func TestContainerOfLittle(t *testing.T) {
	_, s, pod, _ := fakePodOf(t)
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: enginetest.Busybox},
		Command: []string{"true"},
	}
	if id, err := s.CreateContainer(t.Context(), pod, config, nil); err != nil || id == "" {
		t.Errorf("%q, %v", id, err)
	}
}
