package service

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/layout"
)

// maxSpec bounds a config.json, in bytes: what fits into a call to the agent,
// with room for the call around it.
const maxSpec = 3 << 20

// Create makes a container of a bundle.
func (t task) Create(ctx context.Context, r *taskv3.CreateTaskRequest) (*taskv3.CreateTaskResponse, error) {
	if err := checkID(r.ID); err != nil {
		return nil, err
	}
	if r.Checkpoint != "" || r.ParentCheckpoint != "" {
		return nil, toStatus(unserved("checkpoint", r.Checkpoint))
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
	if c.Stdin, c.StdinOnce, err = names.input(); err != nil {
		return c, err
	}
	var log string
	if c.Output, log, err = names.output(); err != nil {
		return c, err
	}
	disks, err := images(r.Rootfs)
	if err != nil {
		return c, err
	}
	if c.Spec, err = readSpec(r.Bundle); err != nil {
		return c, err
	}
	sent := []string{log}
	for _, d := range disks {
		sent = append(sent, d.file)
	}
	files, err := t.takeFiles(sent...)
	if err != nil {
		return c, err
	}
	c.Log, c.ImageID, c.ImageDisk = files[0], disks[0].image, files[1]
	for i, d := range disks[1:] {
		c.Volumes = append(c.Volumes, sandbox.ImageVolume{ID: d.image, Disk: files[2+i]})
	}
	return c, nil
}

// disk is an image and the name of the file that was sent, if any.
type disk struct{ image, file string }

// images are the container's own and those of its volumes, in this order.
func images(mounts []*types.Mount) (disks []disk, err error) {
	for _, m := range mounts {
		d := disk{image: m.GetSource()}
		if m.GetType() != layout.DiskType {
			return nil, fmt.Errorf("%w: mounts of type %s are served, not %v", sandbox.ErrInvalid, layout.DiskType, m)
		}
		for _, option := range m.Options {
			name, ok := strings.CutPrefix(option, layout.DiskOption)
			if !ok {
				return nil, fmt.Errorf("%w: unknown option %q of the root", sandbox.ErrInvalid, option)
			}
			d.file = name
		}
		disks = append(disks, d)
	}
	if len(disks) == 0 {
		return nil, fmt.Errorf("%w: a container without a root", sandbox.ErrInvalid)
	}
	return disks, nil
}

func readSpec(bundle string) (json.RawMessage, error) {
	f, err := os.Open(filepath.Join(bundle, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("%w: read the bundle: %w", sandbox.ErrInvalid, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSpec+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the bundle: %w", err)
	case len(b) > maxSpec:
		return nil, fmt.Errorf("%w: config.json is longer than %d bytes", sandbox.ErrInvalid, maxSpec)
	case !json.Valid(b):
		return nil, fmt.Errorf("%w: config.json is not JSON", sandbox.ErrInvalid)
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
	wanted, _, err := names.input()
	if err != nil {
		return nil, toStatus(err)
	}
	output, log, err := names.output()
	if err == nil && log != "" {
		err = unserved("stdout of an exec", names.stdout)
	}
	if err != nil {
		return nil, toStatus(err)
	}
	spec := r.GetSpec().GetValue()
	if !json.Valid(spec) {
		return nil, invalid("exec %s in %s: the process is not JSON", r.ExecID, r.ID)
	}
	err = t.o.Sandbox.CreateExec(ctx, sandbox.ExecConfig{
		Process: p, Spec: spec, Terminal: r.Terminal, Stdin: wanted, Output: output,
	})
	if err != nil {
		return nil, toStatus(err)
	}
	t.remember(p, names)
	return &emptypb.Empty{}, nil
}
