package containerd

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	eventsapi "github.com/containerd/containerd/api/events"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/bulkhead-project/bulkhead/door/containerd/bootstrap"
	"github.com/bulkhead-project/bulkhead/door/containerd/events"
	"github.com/bulkhead-project/bulkhead/door/containerd/options"
	"github.com/bulkhead-project/bulkhead/door/containerd/rootfs"
	"github.com/bulkhead-project/bulkhead/door/containerd/stdio"
	"github.com/bulkhead-project/bulkhead/internal/undo"
)

// rootName is the directory in a bundle where containerd wants the root file system.
const rootName = "rootfs"

func (s *Services) create(ctx context.Context, r *taskv3.CreateTaskRequest) (*taskv3.CreateTaskResponse, error) {
	switch {
	case r.Checkpoint != "" || r.ParentCheckpoint != "":
		return nil, errCheckpoint
	case !bootstrap.ValidID(r.ID):
		return nil, fmt.Errorf("%w: id %.80q", errdefs.ErrInvalidArgument, r.ID)
	case !filepath.IsAbs(r.Bundle):
		return nil, fmt.Errorf("%w: bundle %.200q: must be an absolute path", errdefs.ErrInvalidArgument, r.Bundle)
	}
	o, err := options.Parse(r.Options)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ctx, cancel)()
	names := stdio.Names{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal}
	t := &task{process: newProcess(r.ID, r.ID, names), bundle: r.Bundle, options: o, cancel: cancel, execs: map[string]*process{}}
	done, err := s.reserve(ctx, t)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := s.make(ctx, t, r); err != nil {
		s.forget(t)
		return nil, fmt.Errorf("OCI runtime create failed: %w", err)
	}
	_, pid := t.end()
	s.o.Events.Publish(events.Create, &eventsapi.TaskCreate{
		ContainerID: r.ID, Bundle: r.Bundle, Rootfs: r.Rootfs, Checkpoint: r.Checkpoint, Pid: uint32(pid),
		IO: &eventsapi.TaskIO{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal},
	})
	s.wg.Go(func() { s.watchTask(t) })
	return &taskv3.CreateTaskResponse{Pid: uint32(pid)}, nil
}

// reserve takes the task's id, and the task's turn until done is called.
func (s *Services) reserve(ctx context.Context, t *task) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks[t.container] != nil {
		return nil, fmt.Errorf("task %s: %w", t.container, errdefs.ErrAlreadyExists)
	}
	s.tasks[t.container] = t
	return t.take(ctx) // is free
}

func (s *Services) forget(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, t.container)
}

// make mounts the root, opens the streams and creates the container. On an error it leaves nothing behind.
func (s *Services) make(ctx context.Context, t *task, r *taskv3.CreateTaskRequest) (err error) {
	var undos undo.Stack
	defer undos.OnError(ctx, &err)
	if len(r.Rootfs) > 0 {
		root := filepath.Join(t.bundle, rootName)
		undos.Push("mount", func(ctx context.Context) error { return rootfs.Unmount(ctx, root) })
		if err := rootfs.Mount(ctx, root, r.Rootfs); err != nil {
			return err
		}
	}
	if err := s.addPodFiles(t.bundle); err != nil {
		return err
	}
	streams, err := s.open(ctx, &t.process)
	if err != nil {
		return err
	}
	defer streams.Release()
	undos.Push("open", func(context.Context) error {
		s.closeLater(streams)
		return nil
	})
	handle, err := s.o.Runtime.Create(ctx, t.createOptions(streams))
	if err != nil {
		return err
	}
	t.made(tasktypes.Status_CREATED, handle, streams)
	s.record(t, Exit{})
	return nil
}

func (t *task) createOptions(streams *stdio.Streams) CreateOptions {
	return CreateOptions{
		ID: t.container, Bundle: t.bundle, Streams: streamsOf(&t.process, streams),
		VCPUs: t.options.VCPUs, MemoryMiB: t.options.MemoryMiB, Strict: t.options.Strict, SystemdCgroup: t.options.SystemdCgroup,
	}
}

func streamsOf(p *process, s *stdio.Streams) Streams {
	return Streams{Stdin: s.Stdin, Stdout: s.Stdout, Stderr: s.Stderr, Terminal: p.names.Terminal}
}

func (s *Services) open(ctx context.Context, p *process) (*stdio.Streams, error) {
	return stdio.Open(ctx, p.names, stdio.Owner{Namespace: s.o.Namespace, ID: p.id})
}

// closeLater closes streams. A logging program may need some seconds to end, which no call waits for.
func (s *Services) closeLater(streams *stdio.Streams) {
	if streams != nil {
		s.wg.Go(streams.Close)
	}
}

// register registers an exec, which Start runs.
func (s *Services) register(_ context.Context, r *taskv3.ExecProcessRequest) (*emptypb.Empty, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	spec := r.GetSpec().GetValue()
	switch {
	case !bootstrap.ValidID(r.ExecID):
		return nil, fmt.Errorf("%w: exec id %.80q", errdefs.ErrInvalidArgument, r.ExecID)
	case !json.Valid(spec):
		return nil, fmt.Errorf("%w: exec %s in task %s: the process must be JSON", errdefs.ErrInvalidArgument, r.ExecID, r.ID)
	}
	p := newProcess(r.ID, r.ExecID, stdio.Names{Stdin: r.Stdin, Stdout: r.Stdout, Stderr: r.Stderr, Terminal: r.Terminal})
	p.spec, p.status = spec, tasktypes.Status_CREATED
	t.execsMu.Lock()
	defer t.execsMu.Unlock()
	if t.execs[r.ExecID] != nil {
		return nil, fmt.Errorf("exec %s in task %s: %w", r.ExecID, r.ID, errdefs.ErrAlreadyExists)
	}
	t.execs[r.ExecID] = &p
	s.o.Events.Publish(events.ExecAdded, &eventsapi.TaskExecAdded{ContainerID: r.ID, ExecID: r.ExecID})
	return &emptypb.Empty{}, nil
}
