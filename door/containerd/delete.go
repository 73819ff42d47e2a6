package containerd

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	eventsapi "github.com/containerd/containerd/api/events"
	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bulkhead-project/bulkhead/door/containerd/events"
	"github.com/bulkhead-project/bulkhead/door/containerd/podconfig"
	"github.com/bulkhead-project/bulkhead/door/containerd/rootfs"
)

func (s *Services) delete(ctx context.Context, r *taskv3.DeleteRequest) (*taskv3.DeleteResponse, error) {
	s.mu.Lock()
	t := s.tasks[r.ID]
	s.mu.Unlock()
	if t == nil {
		return nil, noTask(r.ID)
	}
	p := &t.process
	if r.ExecID != "" {
		var err error
		if p, err = t.exec(r.ExecID); err != nil {
			return nil, err
		}
	} else if !t.known() {
		t.cancel() // a creation that is under way undoes itself
	}
	err := s.detach(ctx, func(ctx context.Context) error {
		done, err := p.take(ctx)
		if err != nil {
			return err
		}
		defer done()
		if p != &t.process {
			return t.deleteExec(p)
		}
		return s.deleteTask(ctx, t)
	})
	if err != nil {
		return nil, err
	}
	exit, pid := p.end()
	return &taskv3.DeleteResponse{Pid: uint32(pid), ExitStatus: uint32(exit.Status), ExitedAt: timestamppb.New(exit.At)}, nil
}

func (t *task) deleteExec(p *process) error {
	if status, _ := p.state(); status == tasktypes.Status_RUNNING {
		return fmt.Errorf("delete exec %s, which is running: %w", p.id, errdefs.ErrFailedPrecondition)
	}
	t.execsMu.Lock()
	defer t.execsMu.Unlock()
	if t.execs[p.id] != p {
		return fmt.Errorf("exec %s in task %s: %w", p.id, t.container, errdefs.ErrNotFound) // another call was first
	}
	delete(t.execs, p.id)
	return nil
}

// deleteTask removes a task that has ended or was never started. The caller has its turn, and can repeat a call that fails.
func (s *Services) deleteTask(ctx context.Context, t *task) error {
	s.mu.Lock()
	current := s.tasks[t.container] == t
	s.mu.Unlock()
	if !current {
		return noTask(t.container) // the creation failed, or another call was first
	}
	switch status, handle := t.state(); status {
	case tasktypes.Status_STOPPED:
	case tasktypes.Status_CREATED:
		if err := handle.Signal(ctx, unix.SIGKILL); err != nil {
			s.o.Log.Warn("kill a created container", "task", t.container, "error", err) // the Runtime kills it too
		}
	default:
		return fmt.Errorf("delete task %s, which is %s: %w", t.container, word(status), errdefs.ErrFailedPrecondition)
	}
	if err := s.o.Runtime.Delete(ctx, t.container); err != nil {
		return fmt.Errorf("delete task %s: %w", t.container, err)
	}
	if err := t.awaitEnd(ctx); err != nil {
		return fmt.Errorf("delete task %s: its process has not ended: %w", t.container, err)
	}
	if err := rootfs.Unmount(ctx, filepath.Join(t.bundle, rootName)); err != nil {
		return fmt.Errorf("delete task %s: %w", t.container, err)
	}
	s.forget(t)
	exit, pid := t.end()
	s.o.Events.Publish(events.Delete, &eventsapi.TaskDelete{
		ContainerID: t.container, Pid: uint32(pid), ExitStatus: uint32(exit.Status), ExitedAt: timestamppb.New(exit.At),
	})
	return nil
}

// Remove removes a container without its front: from the Runtime, and the mounts in its bundle. It is idempotent.
func Remove(ctx context.Context, rt Runtime, id, bundle string) error {
	err := rt.Delete(ctx, id)
	return errors.Join(err, rootfs.Unmount(ctx, filepath.Join(bundle, rootName)), podconfig.FilesIn(bundle).Remove())
}
