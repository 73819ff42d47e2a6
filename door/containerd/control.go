package containerd

import (
	"context"
	"encoding/json"
	"fmt"

	eventsapi "github.com/containerd/containerd/api/events"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/bulkhead-project/bulkhead/door/containerd/events"
	"github.com/bulkhead-project/bulkhead/internal/errclass"
)

var errCheckpoint = fmt.Errorf("checkpoint is %w", errUnsupported)

func (s *Services) checkpoint(context.Context, *taskv3.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return nil, errCheckpoint
}

func (s *Services) kill(ctx context.Context, r *taskv3.KillRequest) (*emptypb.Empty, error) {
	if r.Signal < 1 || r.Signal > 64 {
		return nil, fmt.Errorf("%w: signal %d: must be 1 to 64", errdefs.ErrInvalidArgument, r.Signal)
	}
	t, p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	status, handle := p.state()
	switch {
	case status == tasktypes.Status_STOPPED:
		return nil, errclass.New(errdefs.ErrNotFound, "kill %s: process already finished", p.id) // as runc's shim
	case handle == nil:
		return nil, fmt.Errorf("kill exec %s: the process was not started: %w", p.id, errdefs.ErrFailedPrecondition)
	}
	return empty(s.detach(ctx, func(ctx context.Context) error {
		if r.All && r.ExecID == "" {
			return s.o.Runtime.KillAll(ctx, t.container, unix.Signal(r.Signal))
		}
		return handle.Signal(ctx, unix.Signal(r.Signal))
	}))
}

func (s *Services) pause(ctx context.Context, r *taskv3.PauseRequest) (*emptypb.Empty, error) {
	return s.change(ctx, r.ID, tasktypes.Status_RUNNING, tasktypes.Status_PAUSED, s.o.Runtime.Pause, func() {
		s.o.Events.Publish(events.Paused, &eventsapi.TaskPaused{ContainerID: r.ID})
	})
}

func (s *Services) resume(ctx context.Context, r *taskv3.ResumeRequest) (*emptypb.Empty, error) {
	return s.change(ctx, r.ID, tasktypes.Status_PAUSED, tasktypes.Status_RUNNING, s.o.Runtime.Resume, func() {
		s.o.Events.Publish(events.Resumed, &eventsapi.TaskResumed{ContainerID: r.ID})
	})
}

// change changes a task's status from one value to another, and publishes it.
func (s *Services) change(
	ctx context.Context, id string, from, to tasktypes.Status, call func(context.Context, string) error, publish func(),
) (*emptypb.Empty, error) {
	t, err := s.task(id)
	if err != nil {
		return nil, err
	}
	return empty(s.detach(ctx, func(ctx context.Context) error {
		done, err := t.take(ctx)
		if err != nil {
			return err
		}
		defer done()
		if status, _ := t.state(); status != from {
			return fmt.Errorf("task %s is %s, and must be %s: %w", id, word(status), word(from), errdefs.ErrFailedPrecondition)
		}
		if err := call(ctx, id); err != nil {
			return err
		}
		t.set(to)
		publish()
		return nil
	}))
}

func (s *Services) update(ctx context.Context, r *taskv3.UpdateTaskRequest) (*emptypb.Empty, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	resources := r.GetResources().GetValue()
	if !json.Valid(resources) {
		return nil, fmt.Errorf("%w: update task %s: the resources must be JSON", errdefs.ErrInvalidArgument, r.ID)
	}
	return empty(s.detach(ctx, func(ctx context.Context) error {
		return s.o.Runtime.Update(ctx, t.container, resources)
	}))
}

func (s *Services) resize(ctx context.Context, r *taskv3.ResizePtyRequest) (*emptypb.Empty, error) {
	if r.Width > 0xffff || r.Height > 0xffff {
		return nil, fmt.Errorf("%w: terminal size %d by %d: each must be at most 65535", errdefs.ErrInvalidArgument, r.Width, r.Height)
	}
	_, p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	status, handle := p.state()
	if handle == nil || status == tasktypes.Status_STOPPED {
		return nil, fmt.Errorf("resize the terminal of %s: the process is not running: %w", p.id, errdefs.ErrFailedPrecondition)
	}
	return empty(s.detach(ctx, func(ctx context.Context) error {
		return handle.Resize(ctx, uint16(r.Width), uint16(r.Height))
	}))
}

func (s *Services) closeIO(_ context.Context, r *taskv3.CloseIORequest) (*emptypb.Empty, error) {
	_, p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	streams := p.streams
	p.mu.Unlock()
	if r.Stdin && streams != nil {
		streams.CloseStdin()
	}
	return &emptypb.Empty{}, nil
}

func empty(err error) (*emptypb.Empty, error) { return &emptypb.Empty{}, err }
