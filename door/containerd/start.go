package containerd

import (
	"context"
	"fmt"

	eventsapi "github.com/containerd/containerd/api/events"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/containerd/events"
)

func (s *Services) start(ctx context.Context, r *taskv3.StartRequest) (*taskv3.StartResponse, error) {
	t, p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	err = s.detach(ctx, func(ctx context.Context) error {
		done, err := p.take(ctx)
		if err != nil {
			return err
		}
		defer done()
		if r.ExecID == "" {
			return s.startTask(ctx, t)
		}
		return s.startExec(ctx, t, p)
	})
	if err != nil {
		return nil, err
	}
	_, pid := p.end()
	return &taskv3.StartResponse{Pid: uint32(pid)}, nil
}

// startTask runs the first process of a task. The caller has its turn.
func (s *Services) startTask(ctx context.Context, t *task) error {
	if status, _ := t.state(); status != tasktypes.Status_CREATED {
		return fmt.Errorf("start task %s, which is %s: %w", t.container, word(status), errdefs.ErrFailedPrecondition)
	}
	t.publishing.Lock()
	defer t.publishing.Unlock()
	if err := s.o.Runtime.Start(ctx, t.container); err != nil {
		return fmt.Errorf("OCI runtime start failed: %w", err)
	}
	t.holdStdin()
	t.set(tasktypes.Status_RUNNING)
	_, pid := t.end()
	s.o.Events.Publish(events.Start, &eventsapi.TaskStart{ContainerID: t.container, Pid: uint32(pid)})
	return nil
}

// startExec runs an exec. The caller has its turn.
func (s *Services) startExec(ctx context.Context, t *task, p *process) error {
	if status, _ := p.state(); status != tasktypes.Status_CREATED {
		return fmt.Errorf("start exec %s, which is %s: %w", p.id, word(status), errdefs.ErrFailedPrecondition)
	}
	if status, _ := t.state(); status == tasktypes.Status_STOPPED {
		return fmt.Errorf("start exec %s: the init process of task %s is not running: %w", p.id, t.container, errdefs.ErrFailedPrecondition)
	}
	streams, err := s.open(ctx, p)
	if err != nil {
		return fmt.Errorf("OCI runtime exec failed: %w", err)
	}
	defer streams.Release()
	handle, err := s.o.Runtime.Exec(ctx, ExecOptions{
		Container: t.container, ID: p.id, Spec: p.spec, Streams: streamsOf(p, streams),
	})
	if err != nil {
		s.closeLater(streams)
		return fmt.Errorf("OCI runtime exec failed: %w", err)
	}
	streams.HoldStdin()
	// The exit is watched only after this event is queued.
	p.made(tasktypes.Status_RUNNING, handle, streams)
	s.o.Events.Publish(events.ExecStarted, &eventsapi.TaskExecStarted{
		ContainerID: t.container, ExecID: p.id, Pid: uint32(handle.PID()),
	})
	s.wg.Go(func() { s.watch(t, p) })
	return nil
}

// word returns the word for a status in messages.
func word(status tasktypes.Status) string {
	switch status {
	case tasktypes.Status_CREATED:
		return "created"
	case tasktypes.Status_RUNNING:
		return "running"
	case tasktypes.Status_PAUSED:
		return "paused"
	case tasktypes.Status_STOPPED:
		return "stopped"
	}
	return "being created"
}
