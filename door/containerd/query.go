package containerd

import (
	"context"
	"os"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	runcoptions "github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/bulkhead-project/bulkhead/door/containerd/events"
)

func (s *Services) state(_ context.Context, r *taskv3.StateRequest) (*taskv3.StateResponse, error) {
	t, p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	res := &taskv3.StateResponse{
		ID: p.id, Bundle: t.bundle, ExecID: r.ExecID,
		Stdin: p.names.Stdin, Stdout: p.names.Stdout, Stderr: p.names.Stderr, Terminal: p.names.Terminal,
	}
	exit, pid := p.end()
	res.Status, _ = p.state()
	res.Pid = uint32(pid)
	if res.Status == tasktypes.Status_STOPPED {
		res.ExitStatus, res.ExitedAt = uint32(exit.Status), timestamppb.New(exit.At)
	}
	return res, nil
}

// pids returns the host's processes that stand for those in the container. A stopped task still has its first one: after a
// restart, containerd deletes a task without any as a leftover, with its exit code.
func (s *Services) pids(_ context.Context, r *taskv3.PidsRequest) (*taskv3.PidsResponse, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	_, pid := t.end()
	res := &taskv3.PidsResponse{Processes: []*tasktypes.ProcessInfo{{Pid: uint32(pid)}}}
	for _, p := range t.running() {
		info, err := events.Any(&runcoptions.ProcessDetails{ExecID: p.id})
		if err != nil {
			return nil, err
		}
		_, pid := p.end()
		res.Processes = append(res.Processes, &tasktypes.ProcessInfo{Pid: uint32(pid), Info: info})
	}
	return res, nil
}

func (s *Services) wait(ctx context.Context, r *taskv3.WaitRequest) (*taskv3.WaitResponse, error) {
	_, p, err := s.process(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	if err := p.awaitEnd(ctx); err != nil {
		return nil, err
	}
	exit, _ := p.end()
	return &taskv3.WaitResponse{ExitStatus: uint32(exit.Status), ExitedAt: timestamppb.New(exit.At)}, nil
}

func (s *Services) stats(ctx context.Context, r *taskv3.StatsRequest) (*taskv3.StatsResponse, error) {
	t, err := s.task(r.ID)
	if err != nil {
		return nil, err
	}
	m, err := s.o.Runtime.Stats(ctx, t.container)
	if err != nil {
		return nil, err
	}
	packed, err := events.Any(m)
	return &taskv3.StatsResponse{Stats: packed}, err
}

// connect answers for every id, also for the pod's and for a task that is gone: a restarted containerd takes an error for
// the front's death.
func (s *Services) connect(_ context.Context, r *taskv3.ConnectRequest) (*taskv3.ConnectResponse, error) {
	res := &taskv3.ConnectResponse{ShimPid: uint32(os.Getpid())}
	if t, err := s.task(r.ID); err == nil {
		_, pid := t.end()
		res.TaskPid = uint32(pid)
	} else if p, err := s.podOf(r.ID); err == nil {
		_, pid := p.end()
		res.TaskPid = uint32(pid)
	}
	return res, nil
}

// shutdown ends the front after its last task. Containerd calls it after each one.
func (s *Services) shutdown(context.Context, *taskv3.ShutdownRequest) (*emptypb.Empty, error) {
	s.EndIfIdle()
	return &emptypb.Empty{}, nil
}
