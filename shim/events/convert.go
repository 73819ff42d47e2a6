package events

import (
	"fmt"

	containerd "github.com/containerd/containerd/api/events"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/sandbox"
)

// The topics: containerd's where it has one, otherwise our own.
const (
	TopicReady          = "/bulkhead/ready" // the first event of a stream; no body
	TopicSandboxPaused  = "/bulkhead/paused"
	TopicSandboxResumed = "/bulkhead/resumed"
	TopicSandboxCreate  = "/sandboxes/create"
	TopicSandboxStart   = "/sandboxes/start"
	TopicSandboxExit    = "/sandboxes/exit"
	TopicCreate         = "/tasks/create"
	TopicStart          = "/tasks/start"
	TopicExit           = "/tasks/exit"
	TopicDelete         = "/tasks/delete"
	TopicOOM            = "/tasks/oom"
	TopicPaused         = "/tasks/paused"
	TopicResumed        = "/tasks/resumed"
	TopicExecAdded      = "/tasks/exec-added"
	TopicExecStarted    = "/tasks/exec-started"
)

// Convert converts a sandbox's event to containerd's form; id is the sandbox's.
func Convert(id string, e sandbox.Event) (*shimv1.Event, error) {
	topic, body := event(id, e)
	if body == nil {
		return nil, fmt.Errorf("event of unknown kind %q", e.Kind)
	}
	packed, err := Any(body)
	if err != nil {
		return nil, fmt.Errorf("pack event %s: %w", topic, err)
	}
	return &shimv1.Event{Time: timestamppb.New(e.Time), Topic: topic, Event: packed}, nil
}

// Any packs m like containerd, with the type's bare name as the URL.
func Any(m proto.Message) (*anypb.Any, error) {
	value, err := proto.Marshal(m)
	if err != nil {
		return nil, err
	}
	return &anypb.Any{TypeUrl: string(m.ProtoReflect().Descriptor().FullName()), Value: value}, nil
}

func event(id string, e sandbox.Event) (string, proto.Message) {
	container, exec, pid := e.Process.Container, e.Process.Exec, uint32(e.PID)
	var exit sandbox.Exit
	if e.Exit != nil {
		exit = *e.Exit
	}
	switch e.Kind {
	case sandbox.SandboxCreated:
		return TopicSandboxCreate, &containerd.SandboxCreate{SandboxID: id}
	case sandbox.SandboxStarted:
		return TopicSandboxStart, &containerd.SandboxStart{SandboxID: id}
	case sandbox.SandboxStopped:
		return TopicSandboxExit, &containerd.SandboxExit{SandboxID: id, ExitedAt: timestamppb.New(e.Time)}
	case sandbox.SandboxPaused:
		return TopicSandboxPaused, &containerd.TaskPaused{ContainerID: id}
	case sandbox.SandboxResumed:
		return TopicSandboxResumed, &containerd.TaskResumed{ContainerID: id}
	case sandbox.ContainerCreated:
		return TopicCreate, &containerd.TaskCreate{ContainerID: container, Pid: pid}
	case sandbox.ContainerPaused:
		return TopicPaused, &containerd.TaskPaused{ContainerID: container}
	case sandbox.ContainerResumed:
		return TopicResumed, &containerd.TaskResumed{ContainerID: container}
	case sandbox.ExecCreated:
		return TopicExecAdded, &containerd.TaskExecAdded{ContainerID: container, ExecID: exec}
	case sandbox.ProcessStarted:
		if exec != "" {
			return TopicExecStarted, &containerd.TaskExecStarted{ContainerID: container, ExecID: exec, Pid: pid}
		}
		return TopicStart, &containerd.TaskStart{ContainerID: container, Pid: pid}
	case sandbox.ProcessExited:
		return TopicExit, &containerd.TaskExit{
			ContainerID: container, ID: processID(e.Process), Pid: pid,
			ExitStatus: uint32(exit.Code), ExitedAt: timestamppb.New(exit.At),
		}
	case sandbox.ProcessDeleted:
		return TopicDelete, &containerd.TaskDelete{
			ContainerID: container, ID: exec, Pid: pid,
			ExitStatus: uint32(exit.Code), ExitedAt: timestamppb.New(exit.At),
		}
	case sandbox.OOM:
		return TopicOOM, &containerd.TaskOOM{ContainerID: container}
	}
	return "", nil
}

// processID returns containerd's id of a process in an exit: the container's id for its first process.
func processID(p sandbox.Process) string {
	if p.Exec != "" {
		return p.Exec
	}
	return p.Container
}
