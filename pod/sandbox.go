package pod

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/plan"
)

const (
	// ReasonVMKilled is the reason of an event when the pod's VM ended unexpectedly, and of the status of a pod that
	// ended with it.
	ReasonVMKilled  = "VMKilled"
	messageVMKilled = "The pod's VM ended unexpectedly, and the containers that ran in it with it."
)

// sandboxes makes and removes the pod's sandboxes.
type sandboxes struct {
	*core
	attempt  uint32          // of the next sandbox
	old      []string        // ids of instances that appear in the status no longer
	sweeping bool            // a sweep is running
	pauses   retry.Pauses    // between attempts to mount claims
	claims   <-chan struct{} // closed when a retry is worthwhile, after a failure
}

// stopSandbox stops the sandbox, if there is one, and then calls done. It retries until it succeeds: a pod must not
// count as ended while its VM runs. The pauses grow up to last. Meanwhile no other step may use the sandbox.
func (r *sandboxes) stopSandbox(ctx context.Context, last time.Duration, done func(id string)) {
	id := r.Sandbox.GetId()
	if id == "" {
		done(id)
		return
	}
	r.Busy = true
	r.beside(ctx, func() func() {
		pauses := retry.Pauses{First: retryDelay, Last: last}
		err := pauses.Until(ctx, nil, func() error { return r.stopSandboxOnce(ctx, id) }, func(err error) {
			r.p.log.Warn("cannot stop the sandbox", "sandbox", id, "error", err)
		})
		return func() {
			if r.Busy = false; err == nil { // else ctx has ended, and the pod continues to run
				done(id)
			}
		}
	})
}

// died records that the dead sandbox has stopped.
func (r *sandboxes) died(id string) {
	r.Dead = id
	if r.p.stopping() == nil {
		r.event(nil, true, ReasonVMKilled, messageVMKilled)
	}
}

// createSandbox creates the next sandbox, beside the loop.
func (r *sandboxes) createSandbox(ctx context.Context) {
	if r.Sandbox != nil {
		r.event(nil, false, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	r.Busy = true
	sandbox := config.Sandbox(&r.o.Options, r.attempt)
	if _, notes := config.DNSOf(&r.o.Options); len(notes) > 0 {
		r.event(nil, true, "DNSConfigForming", strings.Join(notes, "; "))
	}
	sandbox.Annotations[annotations.Started] = r.Began.UTC().Format(time.RFC3339Nano)
	r.try(ctx, plan.MakeSandbox, sandboxDeadline, func(ctx context.Context) error {
		return r.makeSandbox(ctx, sandbox)
	}, func(err error, given bool) {
		r.Busy = false
		if err != nil && given {
			return
		}
		r.SandboxErr = err
		r.unclaimed() // claims are checked before each sandbox
		if err == nil {
			r.SandboxTry = plan.Try{}
			return
		}
		r.SandboxTry.Fail("", err.Error(), time.Now())
		if !r.fail(ErrStart, err) {
			r.event(nil, true, "FailedCreatePodSandBox", err.Error())
		}
	})
}

func (r *sandboxes) makeSandbox(ctx context.Context, sandbox *runtimeapi.PodSandboxConfig) error {
	if r.o.LogDir != "" {
		if err := os.MkdirAll(r.o.LogDir, 0o755); err != nil {
			return fmt.Errorf("create the pod's log directory: %w", err)
		}
	}
	var handler string
	var err error
	if class := r.Pod.Spec.RuntimeClassName; class != nil && *class != "" {
		if handler = *class; r.o.Handler != nil {
			if handler, err = r.o.Handler(ctx); err != nil {
				return fmt.Errorf("look up the pod's RuntimeClass: %w", err)
			}
		}
	}
	if more, ok := r.o.Runtime.(runtimev1.Runtime); ok {
		_, err = more.RunPodSandboxWith(ctx, sandbox, handler, config.Beyond(&r.o.Options))
	} else if err = config.Plain(&r.o.Options); err == nil {
		_, err = r.o.Runtime.RunPodSandbox(ctx, sandbox, handler)
	}
	return err // the runtime's error names the call
}

func (r *sandboxes) stopSandboxOnce(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stopSlack)
	defer cancel()
	return instance.Unless(r.o.Runtime.StopPodSandbox(ctx, id), "stop sandbox", id)
}

// resumeStart restores the pod's start time from the annotation of its sandbox.
func (r *sandboxes) resumeStart() {
	noted, err := time.Parse(time.RFC3339Nano, r.Sandbox.GetAnnotations()[annotations.Started])
	if err != nil && r.Sandbox.GetCreatedAt() > 0 {
		noted = instance.Time(r.Sandbox.GetCreatedAt())
	}
	if !noted.IsZero() {
		r.Began = beganAt(noted, r.Began)
	}
}

// beganAt returns the start time for a pod that noted one, as a duration before now, so that changes of the clock do
// not matter. A note from the future comes from a clock that was set back, and counts as now.
func beganAt(noted, now time.Time) time.Time { return now.Add(-max(now.Sub(noted), 0)) }

// sweep removes old containers that no longer appear in the status, and dead sandboxes without any of the others. The
// next observation retries failed removals.
func (r *sandboxes) sweep(ctx context.Context, sandboxes []*runtimeapi.PodSandbox) {
	if r.sweeping {
		return
	}
	needed := map[string]bool{}
	for _, c := range r.Containers {
		for _, i := range c.Instances() {
			needed[i.Sandbox] = true
		}
	}
	var empty []string
	for _, sandbox := range sandboxes[min(1, len(sandboxes)):] {
		if id := sandbox.GetId(); !needed[id] {
			empty = append(empty, id)
		}
	}
	old := r.old
	if len(old)+len(empty) == 0 {
		return
	}
	r.sweeping = true
	r.beside(ctx, func() func() {
		gone := func(what, id string, err error) {
			if err != nil && !instance.Gone(err) {
				r.p.log.Warn("cannot remove "+what, "id", id, "error", err)
				retry.Sleep(ctx, retryDelay, nil)
			}
		}
		for _, id := range old {
			limited, cancel := context.WithTimeout(ctx, containerDeadline)
			gone("an old container", id, r.o.Runtime.RemoveContainer(limited, id))
			cancel()
		}
		for _, id := range empty {
			err := r.stopSandboxOnce(ctx, id)
			if err == nil {
				err = r.o.Runtime.RemovePodSandbox(ctx, id)
			}
			gone("a sandbox that was replaced", id, err)
		}
		return func() { r.sweeping = false }
	})
}
