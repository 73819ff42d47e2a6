// Package launch creates and starts one container of a pod.
package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/logs"
)

// The kubelet's reasons for a container that cannot be created or started.
const (
	ReasonConfig = "CreateContainerConfigError"
	ReasonCreate = "CreateContainerError"
	ReasonRun    = "RunContainerError"
)

// ErrGivenUp is the cause for ending a Launch's context when its container must not stay.
var ErrGivenUp = errors.New("the start was cancelled")

// undoDeadline bounds the removal of a container after its start was cancelled.
const undoDeadline = 10 * time.Second

// Launch is one attempt to start a container. The caller must not change the fields, or the pod in Options, before Run
// has returned.
type Launch struct {
	Runtime   internalapi.RuntimeService
	Options   config.Options
	Container *corev1.Container
	Sandbox   string // the id of the sandbox that gets the container
	Attempt   uint32 // of that sandbox
	// Image has Ref, Restarts and so on; Run sets Allocatable, Skipped and Note.
	Config config.Launch
	// Stale is the id of an earlier instance that was never started. Run removes it first. Empty is none.
	Stale string
	// Allocatable returns the resources of a container without limits.
	Allocatable func(ctx context.Context) (corev1.ResourceList, error)
}

// Event is one outcome, with the kubelet's reasons.
type Event struct {
	Time      time.Time
	Warning   bool
	Reason    string // Pulling, Pulled, Created, Started, Killing, BackOff, Failed, SandboxChanged, …
	Container string // empty: the pod
	Message   string
}

// Result is the outcome of a Launch.
type Result struct {
	ID     string                      // of the container, empty if none was created
	Status *runtimeapi.ContainerStatus // after the start; nil if it is unknown
	Events []Event                     // in their order
	Reason string                      // with Err, the reason why the container waits
	Err    error
}

// Run creates the container and starts it. If ctx ends with the cause ErrGivenUp, Run removes a container that was
// created and is not running. If ctx ends otherwise, the container stays in any case.
func (l *Launch) Run(ctx context.Context) Result {
	var out Result
	if l.Stale != "" {
		if err := l.Runtime.RemoveContainer(ctx, l.Stale); err != nil && !instance.Gone(err) {
			return out.failed(ReasonCreate, fmt.Errorf("remove the container that was never started: %w", err))
		}
	}
	spec, err := l.configure(ctx, &out)
	if err != nil {
		return out.failed(ReasonConfig, err)
	}
	if out.ID, err = l.create(ctx, spec); err != nil {
		return out.failed(ReasonCreate, err)
	}
	defer l.undo(ctx, out.ID)
	l.event(&out, false, "Created", "Created container "+l.Container.Name)
	err = l.Runtime.StartContainer(ctx, out.ID)
	if status, statusErr := l.Runtime.ContainerStatus(ctx, out.ID, false); statusErr == nil {
		out.Status = status.GetStatus()
	}
	if err != nil {
		return out.failed(ReasonRun, err)
	}
	l.event(&out, false, "Started", "Started container "+l.Container.Name)
	return out
}

func (r *Result) failed(reason string, err error) Result {
	r.Reason, r.Err = reason, err
	return *r
}

func (l *Launch) event(r *Result, warning bool, reason, message string) {
	r.Events = append(r.Events, Event{time.Now(), warning, reason, l.Container.Name, message})
}

// configure makes the container's configuration, and the directories it writes to on the host.
func (l *Launch) configure(ctx context.Context, out *Result) (*runtimeapi.ContainerConfig, error) {
	with := l.Config
	with.Note = func(reason, message string) { l.event(out, true, reason, message) }
	with.Skipped = func(s config.Skipped) {
		l.event(out, true, "InvalidEnvironmentVariableNames", fmt.Sprintf(
			"Keys [%s] from the EnvFrom %s %s/%s were skipped since they are considered invalid environment variable names.",
			strings.Join(s.Keys, ", "), s.Source, l.Options.Pod.Namespace, s.Name))
	}
	var err error
	if with.Allocatable, err = l.Allocatable(ctx); err != nil {
		return nil, err
	}
	spec, err := config.Container(ctx, &l.Options, l.Container, with)
	if err != nil {
		return nil, err
	}
	if l.Options.LogDir != "" {
		if err := os.MkdirAll(filepath.Join(l.Options.LogDir, l.Container.Name), 0o755); err != nil {
			return nil, fmt.Errorf("create the log directory: %w", err)
		}
	}
	return spec, logs.MakeMessage(&l.Options, l.Container.Name, with.Restarts)
}

func (l *Launch) create(ctx context.Context, spec *runtimeapi.ContainerConfig) (string, error) {
	sandbox := config.Sandbox(&l.Options, l.Attempt)
	if more, ok := l.Runtime.(runtimev1.Runtime); ok {
		return more.CreateContainerWith(ctx, l.Sandbox, spec, sandbox, config.BeyondContainer(&l.Options, l.Container))
	}
	return l.Runtime.CreateContainer(ctx, l.Sandbox, spec, sandbox)
}

// undo removes the container if the start was cancelled, unless the container runs or has ended.
func (l *Launch) undo(ctx context.Context, id string) {
	if !errors.Is(context.Cause(ctx), ErrGivenUp) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoDeadline)
	defer cancel()
	status, err := l.Runtime.ContainerStatus(ctx, id, false)
	if err != nil || status.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
		// If the removal fails, the end of the sandbox removes the container.
		_ = l.Runtime.RemoveContainer(ctx, id)
	}
}
