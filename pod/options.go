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
	"github.com/bulkhead-project/bulkhead/pod/probe"
	"github.com/bulkhead-project/bulkhead/pod/watch"
	"github.com/bulkhead-project/bulkhead/volume"
)

// Options describe one pod and how it is run. They are not changed, and the pod
// they name must not be changed while it is in use.
type Options struct {
	config.Options

	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
	// Arrival, if set, waits until an image is in the store of Images, which others pull into as well, and is false when ctx
	// has ended before: a pod whose pull has failed takes it then.
	Arrival func(ctx context.Context, image string) bool
	// Watch tells of the events of Runtime, which pods share; nil is one of the pod's own.
	Watch *watch.Watch
	// Claims, if set, are the pod's volumes that are claims or a driver's. Mount is called before each sandbox is
	// made, and again with growing pauses while it fails. Unmount is called when the last sandbox has stopped, and by
	// Delete, whose error its own is; what fails at the end of Run is left to Release.
	Claims volume.Claims
	// Allocatable, if set, tells what a container of that sandbox has that sets
	// no limit, for resourceFieldRef.
	Allocatable func(ctx context.Context, sandbox string) (corev1.ResourceList, error)

	// Handler, if set, looks up the runtime handler of the pod's RuntimeClass, and is asked for each sandbox. Its error
	// matches volume.ErrNotFound where there is no such class: Objects tell when there is. Nil takes the name for the handler.
	Handler func(ctx context.Context) (string, error)

	// Dial connects to a port of the pod whose sandbox it is given, for probes and
	// hooks; nil dials the pod's address. An error that matches
	// syscall.ECONNREFUSED says that nothing listens, one with the code
	// Unavailable, FailedPrecondition or NotFound nothing about the pod.
	Dial func(ctx context.Context, sandbox string, port int) (net.Conn, error)
	// Pauses tells how often the machine of a sandbox has been paused, and whether
	// it is now: probes do not count what happens across that. Nil is never. It
	// must not block.
	Pauses func(sandbox string) (times uint64, now bool)
	// Resume, if set, lets the machine of a sandbox go on that is paused, and does
	// nothing to another: what is to end, by its preStop hook or a signal, runs.
	Resume func(ctx context.Context, sandbox string) error
	// Last is what an earlier Run's Verdicts returned, by the containers' CRI ids.
	// A container that still runs starts with the verdict it had, until its probes
	// say otherwise. One that was being ended for a restart still is. Containers
	// missing from Last start with no verdict.
	Last map[string]probe.Verdict
	// Before are the conditions of an earlier Run's status. One that still has its status keeps its LastTransitionTime.
	Before []corev1.PodCondition
	// Conditions, if set, are those that others set on the pod, for its readiness
	// gates. It is asked on the goroutine of Run and must not block; Changed
	// says that its answer has changed.
	Conditions func() []corev1.PodCondition

	// Turn, if set, tells whether the pod may begin. Until it says TurnNow the pod is
	// Pending, with neither a sandbox nor an image pulled for it; from then on it is
	// not asked again. It is asked on the goroutine of Run and must not block; Changed
	// has it asked again.
	Turn func() Turn
	// Unread, if set, tells of a container's log that somebody is to miss nothing of whether he has come so
	// far that it can be begun anew (logs.Rotator). It may be asked from any goroutine.
	Unread func(log string) bool
	// Deadline, if set, is when the pod ends at the latest, whether its turn has come
	// or not.
	Deadline time.Time

	// Earlier is the sandbox that Clear left of an earlier Run, if any: it is none of
	// this run's.
	Earlier string

	// FailFast ends Run with an error at the first image, sandbox or container
	// that cannot be had, instead of trying again for ever.
	FailFast bool

	// Published, if set, is called when Status has changed, and once when Observed is closed, from the goroutine of
	// Run; it must not block.
	Published func()
	// Event, if set, is told what happens, in order, from the goroutine of Run;
	// it must not block.
	Event func(Event)
	// Probed, if set, is told of each probe of a container, from any goroutine; it must not block.
	Probed func(container string, kind probe.Kind, result probe.Result, took time.Duration)
	Logger *slog.Logger
}

// Event is one outcome, with the kubelet's reasons.
type Event struct {
	Time      time.Time
	Warning   bool
	Reason    string // Pulling, Pulled, Created, Started, Killing, BackOff, Failed, SandboxChanged, …
	Container string // empty: the pod
	Message   string
}

// The classes of Run's errors, matched with errors.Is.
var (
	// ErrImage: FailFast is set and an image cannot be had.
	ErrImage = errors.New("no image")
	// ErrStart: FailFast is set and the sandbox or a container cannot be started.
	ErrStart = errors.New("cannot be started")
)
