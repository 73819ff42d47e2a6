package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/emptypb"

	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/oci"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// Create creates a container from a bundle.
func (t task) Create(ctx context.Context, r *taskv3.CreateTaskRequest) (*taskv3.CreateTaskResponse, error) {
	if err := checkID(r.ID); err != nil {
		return nil, err
	}
	if r.Checkpoint != "" || r.ParentCheckpoint != "" {
		return nil, toStatus(errCheckpoint)
	}
	names := stdio{bundle: r.Bundle, stdin: r.Stdin, stdout: r.Stdout, stderr: r.Stderr}
	config, err := t.containerConfig(r, names)
	if err != nil {
		return nil, toStatus(fmt.Errorf("create container %s: %w", r.ID, err))
	}
	err = t.join(ctx, "create "+r.ID, func(ctx context.Context) error {
		return t.o.Sandbox.CreateContainer(ctx, config)
	})
	if err != nil {
		return nil, toStatus(err)
	}
	t.remember(sandbox.Process{Container: r.ID}, names)
	return &taskv3.CreateTaskResponse{Pid: t.pid(r.ID)}, nil
}

func (t task) containerConfig(r *taskv3.CreateTaskRequest, names stdio) (c sandbox.ContainerConfig, err error) {
	c = sandbox.ContainerConfig{ID: r.ID, Terminal: r.Terminal}
	if c.Stdio, err = names.parse(); err != nil {
		return c, err
	}
	parts, err := layout.ParseRootfs(r.Rootfs)
	if err != nil {
		return c, err
	}
	c.Root = parts[0].Of
	if err := containerv1.Check(containerv1.Container{Root: c.Root, Stdio: c.Stdio}); err != nil {
		return c, err
	}
	for _, part := range parts[1:] {
		switch of := part.Of.(type) {
		case containerv1.Image:
			c.Volumes = append(c.Volumes, sandbox.Volume{ID: of.ID})
		case containerv1.Block:
			c.Volumes = append(c.Volumes, sandbox.Volume{ID: of.Name, Block: &of})
		default:
			return c, fmt.Errorf("%w: %T must be the root", containerv1.ErrInvalid, part.Of)
		}
	}
	if c.Spec, err = readSpec(r.Bundle); err != nil {
		return c, err
	}
	sent := []string{""}
	if log, ok := c.Stdio.(containerv1.Log); ok {
		sent[0] = log.File
	}
	for _, part := range parts {
		sent = append(sent, part.File)
	}
	files, err := t.removeFiles(sent...)
	if err != nil {
		return c, err
	}
	c.Log, c.RootFile = files[0], files[1]
	for i := range c.Volumes {
		c.Volumes[i].Disk = files[2+i]
	}
	return c, nil
}

func readSpec(bundle string) (json.RawMessage, error) {
	f, err := os.Open(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: read the bundle: %w", errdefs.ErrInvalidArgument, err)
	}
	defer f.Close()
	b, err := oci.ReadConfig(f)
	switch {
	case errors.Is(err, oci.ErrInvalid):
		return nil, fmt.Errorf("%w: %w", errdefs.ErrInvalidArgument, err)
	case err != nil:
		return nil, fmt.Errorf("read the bundle: %w", err)
	case !json.Valid(b):
		return nil, fmt.Errorf("%w: config.json must be JSON", errdefs.ErrInvalidArgument)
	}
	return b, nil
}

// Exec registers a process; Start runs it.
func (t task) Exec(ctx context.Context, r *taskv3.ExecProcessRequest) (*emptypb.Empty, error) {
	p := sandbox.Process{Container: r.ID, Exec: r.ExecID}
	if err := checkID(r.ExecID); err != nil {
		return nil, err
	}
	names := stdio{stdin: r.Stdin, stdout: r.Stdout, stderr: r.Stderr}
	streams, err := names.parse()
	if err != nil {
		return nil, toStatus(err)
	}
	spec := r.GetSpec().GetValue()
	if !json.Valid(spec) {
		return nil, invalid("exec %s in %s: the process must be JSON", r.ExecID, r.ID)
	}
	err = t.o.Sandbox.CreateExec(ctx, sandbox.ExecConfig{
		Process: p, Spec: spec, Terminal: r.Terminal, Stdio: streams,
	})
	if err != nil {
		return nil, toStatus(err)
	}
	t.remember(p, names)
	return &emptypb.Empty{}, nil
}
