package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	taskv3 "github.com/containerd/containerd/api/runtime/task/v3"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	containerv1 "github.com/bulkhead-project/bulkhead/api/container/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// task is containerd's Task service, version 3.
type task struct{ *Services }

var _ taskv3.TTRPCTaskService = task{}

var errCheckpoint = fmt.Errorf("checkpoint: %w", errors.ErrUnsupported)

func checkID(id string) error {
	if !containerv1.ValidID(id) {
		return invalid("id %.140q must be 1 to 128 letters, digits, '_', '.' or '-'", id)
	}
	return nil
}

func (t task) State(_ context.Context, r *taskv3.StateRequest) (*taskv3.StateResponse, error) {
	p := sandbox.Process{Container: r.ID, Exec: r.ExecID}
	st, err := t.o.Sandbox.ProcessStatus(p)
	if err != nil {
		return nil, toStatus(err)
	}
	names := t.ioOf(p)
	res := &taskv3.StateResponse{
		ID: r.ID, ExecID: r.ExecID, Pid: uint32(st.PID), Status: taskStatus(st.State), Terminal: st.Terminal,
		Bundle: names.bundle, Stdin: names.stdin, Stdout: names.stdout, Stderr: names.stderr,
	}
	if st.Exit != nil {
		res.ExitStatus, res.ExitedAt = uint32(st.Exit.Code), timestamppb.New(st.Exit.At)
	}
	return res, nil
}

func taskStatus(s sandbox.State) tasktypes.Status {
	switch s {
	case sandbox.Ready:
		return tasktypes.Status_CREATED
	case sandbox.Running:
		return tasktypes.Status_RUNNING
	case sandbox.Paused:
		return tasktypes.Status_PAUSED
	case sandbox.Stopped:
		return tasktypes.Status_STOPPED
	}
	return tasktypes.Status_UNKNOWN
}

func (t task) Start(ctx context.Context, r *taskv3.StartRequest) (*taskv3.StartResponse, error) {
	var pid int
	p := sandbox.Process{Container: r.ID, Exec: r.ExecID}
	if err := t.start(ctx, p); err != nil {
		if exit := t.refused(p); exit != nil && p.Exec != "" {
			return nil, status.Error(codes.InvalidArgument, exit.Message)
		}
		return nil, toStatus(err)
	}
	// A call that joined another has no PID, and the process may have ended already.
	if st, err := t.o.Sandbox.ProcessStatus(p); err == nil {
		pid = st.PID
	}
	return &taskv3.StartResponse{Pid: uint32(pid)}, nil
}

// start runs a registered process. The end of ctx ends only the wait.
func (s *Services) start(ctx context.Context, p sandbox.Process) error {
	return s.join(ctx, "start "+p.Container+" "+p.Exec, func(ctx context.Context) error {
		_, err := s.o.Sandbox.StartProcess(ctx, p)
		return err
	})
}

func (t task) Delete(ctx context.Context, r *taskv3.DeleteRequest) (*taskv3.DeleteResponse, error) {
	p := sandbox.Process{Container: r.ID, Exec: r.ExecID}
	before, _ := t.o.Sandbox.ProcessStatus(p)
	exit, err := t.o.Sandbox.DeleteProcess(ctx, p)
	if err == nil || errors.Is(err, errdefs.ErrNotFound) {
		t.forget(p)
	}
	if err != nil {
		return nil, toStatus(err)
	}
	return &taskv3.DeleteResponse{
		Pid: uint32(before.PID), ExitStatus: uint32(exit.Code), ExitedAt: timestamppb.New(exit.At),
	}, nil
}

func (t task) Pids(ctx context.Context, r *taskv3.PidsRequest) (*taskv3.PidsResponse, error) {
	pids, err := t.o.Sandbox.Pids(ctx, r.ID)
	if err != nil {
		return nil, toStatus(err)
	}
	res := &taskv3.PidsResponse{}
	for _, pid := range pids {
		res.Processes = append(res.Processes, &tasktypes.ProcessInfo{Pid: uint32(pid)})
	}
	return res, nil
}

func (t task) Pause(ctx context.Context, r *taskv3.PauseRequest) (*emptypb.Empty, error) {
	return empty(t.o.Sandbox.PauseContainer(ctx, r.ID))
}

func (t task) Resume(ctx context.Context, r *taskv3.ResumeRequest) (*emptypb.Empty, error) {
	return empty(t.o.Sandbox.ResumeContainer(ctx, r.ID))
}

func (t task) Checkpoint(context.Context, *taskv3.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return empty(errCheckpoint)
}

func (t task) Kill(ctx context.Context, r *taskv3.KillRequest) (*emptypb.Empty, error) {
	if r.Signal < 1 || r.Signal > 64 {
		return nil, invalid("signal %d must be 1 to 64", r.Signal)
	}
	p := sandbox.Process{Container: r.ID, Exec: r.ExecID}
	return empty(t.o.Sandbox.SignalProcess(ctx, p, unix.Signal(r.Signal), r.All))
}

func (t task) ResizePty(ctx context.Context, r *taskv3.ResizePtyRequest) (*emptypb.Empty, error) {
	if r.Width > 0xffff || r.Height > 0xffff {
		return nil, invalid("terminal size %d by %d: each must be at most 65535", r.Width, r.Height)
	}
	p := sandbox.Process{Container: r.ID, Exec: r.ExecID}
	return empty(t.o.Sandbox.ResizeProcess(ctx, p, uint16(r.Width), uint16(r.Height)))
}

func (t task) CloseIO(ctx context.Context, r *taskv3.CloseIORequest) (*emptypb.Empty, error) {
	if !r.Stdin {
		return &emptypb.Empty{}, nil
	}
	return empty(t.o.Sandbox.CloseInput(ctx, sandbox.Process{Container: r.ID, Exec: r.ExecID}))
}

func (t task) Update(ctx context.Context, r *taskv3.UpdateTaskRequest) (*emptypb.Empty, error) {
	resources := r.GetResources().GetValue()
	if !json.Valid(resources) {
		return nil, invalid("update container %s: the resources must be JSON", r.ID)
	}
	return empty(t.o.Sandbox.UpdateContainer(ctx, r.ID, resources))
}

func (t task) Wait(ctx context.Context, r *taskv3.WaitRequest) (*taskv3.WaitResponse, error) {
	exit, err := t.o.Sandbox.WaitProcess(ctx, sandbox.Process{Container: r.ID, Exec: r.ExecID})
	if err != nil {
		return nil, toStatus(err)
	}
	return &taskv3.WaitResponse{ExitStatus: uint32(exit.Code), ExitedAt: timestamppb.New(exit.At)}, nil
}

func (t task) Stats(ctx context.Context, r *taskv3.StatsRequest) (*taskv3.StatsResponse, error) {
	st, err := t.o.Sandbox.ContainerStats(ctx, r.ID)
	if err != nil {
		return nil, toStatus(err)
	}
	raw, err := json.Marshal(st)
	if err != nil {
		return nil, toStatus(err)
	}
	return &taskv3.StatsResponse{Stats: &anypb.Any{TypeUrl: agentv1.StatsType, Value: raw}}, nil
}

func (t task) Connect(_ context.Context, r *taskv3.ConnectRequest) (*taskv3.ConnectResponse, error) {
	return &taskv3.ConnectResponse{ShimPid: uint32(os.Getpid()), TaskPid: t.pid(r.ID), Version: "3"}, nil
}

// Shutdown ends the shim if no container is left, or always with Now. Containerd calls it after every container,
// although only the last one is meant.
func (t task) Shutdown(_ context.Context, r *taskv3.ShutdownRequest) (*emptypb.Empty, error) {
	if r.Now || len(t.o.Sandbox.Status().Processes) == 0 {
		t.o.Shutdown()
	}
	return &emptypb.Empty{}, nil
}

func (t task) pid(id string) uint32 {
	st, err := t.o.Sandbox.ProcessStatus(sandbox.Process{Container: id})
	if err != nil {
		return 0
	}
	return uint32(st.PID)
}

func (s *Services) remember(p sandbox.Process, names stdio) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.io[p] = names
}

func (s *Services) ioOf(p sandbox.Process) stdio {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.io[p]
}

// forget drops the names of a process, and for a container also those of its exec'd processes.
func (s *Services) forget(p sandbox.Process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for q := range s.io {
		if q == p || p.Exec == "" && q.Container == p.Container {
			delete(s.io, q)
		}
	}
}

func empty(err error) (*emptypb.Empty, error) {
	if err != nil {
		return nil, toStatus(err)
	}
	return &emptypb.Empty{}, nil
}
