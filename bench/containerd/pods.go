package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/busybox"
	"github.com/bulkhead-project/bulkhead/internal/ociimage"
)

// pause is the image of what holds a pod's namespaces.
const pause = "localhost/pause:bench"

// LoadPause makes and loads the image that every pod needs beside its own.
func (c *Containerd) LoadPause(ctx context.Context) error {
	img, err := busybox.Image(ctx, busybox.Binary)
	if err != nil {
		return err
	}
	f, err := img.ConfigFile()
	if err != nil {
		return err
	}
	config := f.Config
	config.Entrypoint, config.Cmd = nil, []string{"/bin/sleep", "1000000"}
	if img, err = mutate.Config(img, config); err != nil {
		return fmt.Errorf("make the image of pauses: %w", err)
	}
	layout, archive := filepath.Join(c.dir, "pause"), filepath.Join(c.dir, "pause.tar")
	if err := ociimage.WriteLayout(layout, img); err != nil {
		return err
	}
	if err := ociimage.WriteArchive(archive, layout); err != nil {
		return err
	}
	return c.Load(ctx, archive, pause)
}

// Pod is a pod of one container, on the host's network, as CNI would be another's figure.
type Pod struct {
	id, container string
}

// Start starts a pod and returns when its container runs.
func (c *Containerd) Start(ctx context.Context, name, image string, command ...string) (Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Uid: name, Namespace: "bench"},
		LogDirectory: c.dir,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: c.Account.Path,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
			},
		},
	}
	box, err := c.cri.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		return Pod{}, fmt.Errorf("run pod %s: %w", name, err)
	}
	p := Pod{id: box.PodSandboxId}
	made, err := c.cri.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.id, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: image},
			Command: command, LogPath: name + ".log",
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE},
			}},
		},
	})
	if err != nil {
		return p, fmt.Errorf("create the container of %s: %w", name, err)
	}
	p.container = made.ContainerId
	if _, err := c.cri.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: p.container}); err != nil {
		return p, fmt.Errorf("start the container of %s: %w", name, err)
	}
	return p, nil
}

// Ended waits until the pod's container has exited, with 0.
func (c *Containerd) Ended(ctx context.Context, p Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		r, err := c.cri.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.container})
		switch {
		case err != nil:
			return err
		case r.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED && r.Status.ExitCode != 0:
			return fmt.Errorf("a container exited with %d", r.Status.ExitCode)
		case r.Status.State == runtimeapi.ContainerState_CONTAINER_EXITED:
			return nil
		}
		if err := wait(ctx); err != nil {
			return err
		}
	}
}

// Remove ends a pod and removes it.
func (c *Containerd) Remove(ctx context.Context, p Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// Its containers are killed by that.
	if _, err := c.cri.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		return err
	}
	_, err := c.cri.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id})
	return err
}

func (c *Containerd) removeAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := c.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	var errs []error
	for _, box := range list.Items {
		errs = append(errs, c.Remove(ctx, Pod{id: box.Id}))
	}
	return errors.Join(errs...)
}
