package service

import (
	"context"
	"encoding/json"
	"os"

	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
	"github.com/bulkhead-project/bulkhead/shim/events"
)

// maxReadFile bounds what ReadFile returns, in bytes.
const maxReadFile = 1 << 20

// extension is Bulkhead's own service.
type extension struct{ *Services }

var _ shimv1.ExtensionService = extension{}

func (e extension) Events(ctx context.Context, _ *shimv1.EventsRequest, out shimv1.Extension_EventsServer) error {
	sub, err := e.o.Hub.Subscribe()
	if err != nil {
		return toStatus(err)
	}
	defer sub.Cancel()
	e.followers.Add(1)
	defer func() {
		if e.followers.Add(-1) == 0 {
			e.o.Streams.Abandon() // no subscriber is left that could use the tokens
		}
	}()
	if err := out.Send(&shimv1.Event{Time: timestamppb.Now(), Topic: events.TopicReady}); err != nil {
		return err
	}
	for {
		select {
		case event, ok := <-sub.Events:
			if !ok {
				return toStatus(sub.Err())
			}
			if err := out.Send(event); err != nil {
				return err
			}
		case <-ctx.Done():
			return toStatus(ctx.Err())
		case <-e.ctx.Done():
			return toStatus(events.ErrClosed)
		}
	}
}

func (e extension) Status(ctx context.Context, r *shimv1.StatusRequest) (*shimv1.StatusResponse, error) {
	if r.Booted {
		if err := e.o.Sandbox.WaitBooted(ctx); err != nil {
			return nil, toStatus(err)
		}
	}
	st := e.o.Sandbox.Status()
	res := &shimv1.StatusResponse{
		State: string(st.State), Accel: e.o.Accel, Clone: e.o.Clone,
		VmPid: uint32(st.VM.PID), ShimPid: uint32(os.Getpid()), MemoryMib: int64(st.MemoryMiB),
		ExitReason: st.ExitReason,
	}
	for _, phase := range st.Phases {
		res.Phases = append(res.Phases, &shimv1.Phase{Name: phase.Name, Microseconds: phase.Microseconds})
	}
	for _, p := range st.Processes {
		res.Containers = append(res.Containers, processStatus(p))
	}
	return res, nil
}

func processStatus(p sandbox.ProcessStatus) *shimv1.ContainerStatus {
	res := &shimv1.ContainerStatus{
		Id: p.Container, ExecId: p.Exec, State: string(p.State), Pid: uint32(p.PID),
		CreatedAt: timestamp(p.CreatedAt), StartedAt: timestamp(p.StartedAt),
	}
	if u := p.User; u != nil {
		res.User = &shimv1.User{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	if p.Exit != nil {
		res.ExitCode, res.Reason, res.Message = uint32(p.Exit.Code), p.Exit.Reason, p.Exit.Message
		res.ExitedAt = timestamp(p.Exit.At)
	}
	return res
}

func (e extension) ReopenLog(ctx context.Context, r *shimv1.ReopenLogRequest) (*shimv1.ReopenLogResponse, error) {
	f, err := e.o.Files.Remove(r.File)
	if err != nil {
		return nil, toStatus(err)
	}
	if err := e.o.Sandbox.ReopenLog(ctx, r.ContainerId, f); err != nil {
		f.Close()
		return nil, toStatus(err)
	}
	return &shimv1.ReopenLogResponse{}, nil
}

func (e extension) Steps(_ context.Context, r *shimv1.StepsRequest) (*shimv1.StepsResponse, error) {
	return e.o.Steps.Remove(r), nil
}

func (e extension) Pause(ctx context.Context, _ *shimv1.PauseRequest) (*shimv1.PauseResponse, error) {
	if err := e.join(ctx, "pause", e.o.Sandbox.Pause); err != nil {
		return nil, toStatus(err)
	}
	return &shimv1.PauseResponse{}, nil
}

func (e extension) Resume(ctx context.Context, _ *shimv1.ResumeRequest) (*shimv1.ResumeResponse, error) {
	if err := e.join(ctx, "resume", e.o.Sandbox.Resume); err != nil {
		return nil, toStatus(err)
	}
	return &shimv1.ResumeResponse{}, nil
}

func (e extension) Stats(ctx context.Context, _ *shimv1.StatsRequest) (*shimv1.StatsResponse, error) {
	st, err := e.o.Sandbox.Stats(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	raw, err := json.Marshal(st)
	if err != nil {
		return nil, toStatus(err)
	}
	return &shimv1.StatsResponse{Stats: raw}, nil
}

func (e extension) ReadFile(ctx context.Context, r *shimv1.ReadFileRequest) (*shimv1.ReadFileResponse, error) {
	if r.Limit > maxReadFile {
		return nil, invalid("read of %d bytes: at most %d", r.Limit, maxReadFile)
	}
	data, err := e.o.Sandbox.ReadFile(ctx, r.ContainerId, r.Path, int(r.Limit))
	if err != nil {
		return nil, toStatus(err)
	}
	return &shimv1.ReadFileResponse{Data: data}, nil
}

// maxFiles bounds the files of one call of Files, in bytes, so that they fit into a call to the agent.
const maxFiles = 2 << 20

func (e extension) Files(ctx context.Context, r *shimv1.FilesRequest) (*shimv1.FilesResponse, error) {
	var call agentv1.Files
	if err := json.Unmarshal(r.Files, &call); err != nil {
		return nil, invalid("files of a volume: %v", err)
	}
	size := 0
	for _, f := range call.Entries {
		size += len(f.Path) + len(f.Data)
	}
	if size > maxFiles {
		return nil, invalid("files of %d bytes: at most %d in one call", size, maxFiles)
	}
	state, err := e.o.Sandbox.WriteFiles(ctx, call)
	if err != nil {
		return nil, toStatus(err)
	}
	return &shimv1.FilesResponse{Digest: state.Digest}, nil
}

func (e extension) Resize(ctx context.Context, r *shimv1.ResizeRequest) (*shimv1.ResizeResponse, error) {
	var limits agentv1.PodLimits
	if err := json.Unmarshal(r.Limits, &limits); err != nil {
		return nil, invalid("resize the pod: its limits: %v", err)
	}
	return &shimv1.ResizeResponse{}, toStatus(e.o.Sandbox.Resize(ctx, limits, int(r.MemoryMib)))
}

func (e extension) GrowVolume(ctx context.Context, r *shimv1.GrowVolumeRequest) (*shimv1.GrowVolumeResponse, error) {
	if r.Volume == "" || r.Bytes <= 0 {
		return nil, invalid("grow volume %.64q to %d bytes: the size must be positive", r.Volume, r.Bytes)
	}
	return &shimv1.GrowVolumeResponse{}, toStatus(e.o.Sandbox.GrowVolume(ctx, r.Volume, r.Bytes))
}

func (e extension) ReleaseVolumes(ctx context.Context, _ *shimv1.ReleaseVolumesRequest) (*shimv1.ReleaseVolumesResponse, error) {
	return &shimv1.ReleaseVolumesResponse{}, toStatus(e.o.Sandbox.ReleaseVolumes(ctx))
}
