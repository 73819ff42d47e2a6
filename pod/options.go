package pod

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/launch"
	"github.com/bulkhead-project/bulkhead/pod/probe"
	"github.com/bulkhead-project/bulkhead/pod/watch"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Options describe one pod and how to run it. Neither they nor the pod may be changed while in use.
type Options struct {
	config.Options

	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
	// Arrival, if set, waits until an image is in the store of Images, into which others pull as well. It returns false
	// if ctx ends first. A pod uses it after a failed pull.
	Arrival func(ctx context.Context, image string) bool
	// Watch delivers the events of Runtime. Pods share it; if nil, the pod makes its own.
	Watch *watch.Watch
	// Claims, if set, are the pod's volumes from claims or drivers. Mount is called before each sandbox is created, and
	// again with growing pauses while it fails. Unmount is called when the last sandbox has stopped. If it fails then,
	// Release is called; if it fails in Delete, Delete returns the error.
	Claims volume.Claims
	// Allocatable, if set, returns the resources of a container without limits in that sandbox, for resourceFieldRef.
	Allocatable func(ctx context.Context, sandbox string) (corev1.ResourceList, error)

	// Handler, if set, looks up the runtime handler of the pod's RuntimeClass, for each sandbox. Its error matches
	// volume.ErrNotFound if the class does not exist; Objects reports when it does. If nil, the class's name is the
	// handler.
	Handler func(ctx context.Context) (string, error)

	// Dial connects to a port of the pod in a sandbox, for probes and hooks; if nil, they dial the pod's address. An
	// error that matches syscall.ECONNREFUSED means that no process listens. The codes Unavailable, FailedPrecondition
	// and NotFound mean that the pod's state is unknown.
	Dial func(ctx context.Context, sandbox string, port int) (net.Conn, error)
	// Pauses returns how often a sandbox's VM has been paused, and whether it is paused now. Probes ignore results
	// across a pause. Nil means that VMs are never paused. It must not block.
	Pauses func(sandbox string) (times uint64, now bool)
	// Resume, if set, resumes a sandbox's VM if it is paused, so that preStop hooks and signals reach its containers.
	Resume func(ctx context.Context, sandbox string) error
	// Last is the result of an earlier Run's Verdicts, by CRI container id. A container that still runs keeps its
	// verdict until its probes return another one, and its restart if it was being stopped for one. Containers missing
	// from Last start without a verdict.
	Last map[string]probe.Verdict
	// Before are the conditions of an earlier Run's status. A condition with the same status keeps its
	// LastTransitionTime.
	Before []corev1.PodCondition
	// Conditions, if set, returns conditions that others set on the pod, for its readiness gates. It is called on the
	// goroutine of Run and must not block. Changed reports a new result.
	Conditions func() []corev1.PodCondition

	// Turn, if set, returns whether the pod may begin. Until it returns TurnNow, the pod is Pending, without a sandbox
	// and without pulled images. Afterwards it is not called. It is called on the goroutine of Run and must not block.
	// Call Changed to have it called again.
	Turn func() Turn
	// Unread, if set, reports whether the reader of a log, who must not miss data, has read enough for a rotation
	// (logs.Rotator). It may be called from any goroutine.
	Unread func(log string) bool
	// Deadline, if set, is the latest time for the pod's end, even if its turn has not come.
	Deadline time.Time

	// Earlier is the sandbox that Clear kept from an earlier Run, if any. It does not belong to this run.
	Earlier string

	// FailFast ends Run with an error at the first image, sandbox or container that fails, instead of retrying for
	// ever.
	FailFast bool

	// Published, if set, is called when Status has changed, and once when Observed is closed, on the goroutine of Run.
	// It must not block.
	Published func()
	// Event, if set, is called with each event, in order, on the goroutine of Run. It must not block.
	Event func(Event)
	// Probed, if set, is called for each probe of a container, from any goroutine. It must not block.
	Probed func(container string, kind probe.Kind, result probe.Result, took time.Duration)
	Logger *slog.Logger
}

// Event is one outcome.
type Event = launch.Event

// Errors that Run's errors match with errors.Is.
var (
	// ErrImage: FailFast is set and an image is not available.
	ErrImage = errors.New("no image")
	// ErrStart: FailFast is set and the sandbox or a container cannot be started.
	ErrStart = errors.New("cannot be started")
)
