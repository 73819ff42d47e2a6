package pod

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/api/annotations"
	runtimev1 "github.com/bulkhead-project/bulkhead/api/runtime/v1"
	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/instance"
	"github.com/bulkhead-project/bulkhead/pod/watch"
)

const (
	// ReasonVMKilled is the reason of an event when the pod's VM ended unexpectedly, and of the status of a pod that
	// ended with it.
	ReasonVMKilled  = "VMKilled"
	messageVMKilled = "The pod's VM ended unexpectedly, and the containers that ran in it with it."
)

// stopDeadSandbox reports whether the containers' states are reliable. The containers of a dead sandbox are dead, whatever state
// the runtime reports. So it stops each dead sandbox once, and the loop then observes the pod again.
func (r *run) stopDeadSandbox(ctx context.Context) bool {
	if r.starting != nil && (!r.ready() || r.sandbox.GetId() != r.starting.sandbox) {
		r.giveUpStart()
		return false
	}
	if r.sandbox == nil || r.ready() || r.busy || r.sandbox.GetId() == r.stoppedSandbox {
		return !r.busy
	}
	id := r.sandbox.GetId()
	r.busy = true
	r.beside(ctx, func() func() {
		err := r.stopSandbox(ctx, id)
		return func() {
			r.busy = false
			if err == nil {
				r.stoppedSandbox = id
				if r.p.stopping() == nil && r.stopping == nil {
					r.event(nil, true, ReasonVMKilled, messageVMKilled)
				}
				return
			}
			r.p.log.Warn("cannot stop a dead sandbox", "sandbox", id, "error", err)
			r.busy = true
			r.beside(ctx, func() func() { watch.Pause(ctx, retryDelay); return func() { r.busy = false } })
		}
	})
	return false
}

// ensureSandbox reports whether the pod's sandbox is up. If there is none, or a dead one, it starts to create one.
func (r *run) ensureSandbox(ctx context.Context) bool {
	if r.ready() || r.busy {
		return r.ready() && !r.busy
	}
	if r.sandboxErr != nil {
		if due := r.sandboxTry.Until(r.sandboxAt); time.Now().Before(due) {
			r.at(due)
			return false
		}
	}
	if !r.claim(ctx) {
		return false
	}
	if r.sandbox != nil {
		r.event(nil, false, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
	}
	r.busy = true
	sandbox := config.Sandbox(&r.o.Options, r.attempt)
	if _, notes := config.DNSOf(&r.o.Options); len(notes) > 0 {
		r.event(nil, true, "DNSConfigForming", strings.Join(notes, "; "))
	}
	sandbox.Annotations[annotations.Started] = r.began.UTC().Format(time.RFC3339Nano)
	makeCtx, cancel := context.WithTimeout(ctx, sandboxDeadline)
	r.making = cancel
	r.beside(ctx, func() func() {
		err := r.makeSandbox(makeCtx, sandbox)
		given := errors.Is(makeCtx.Err(), context.Canceled) // the pod is being stopped
		cancel()
		return func() {
			r.busy, r.making = false, nil
			if err != nil && given {
				return
			}
			r.sandboxErr, r.claims = err, claims{} // claims are checked before each sandbox
			if err == nil {
				r.sandboxTry = backoff.Backoff{}
				return
			}
			r.sandboxAt = time.Now()
			r.sandboxTry.Next(r.sandboxAt, r.sandboxAt)
			if !r.fail(ErrStart, err) {
				r.event(nil, true, "FailedCreatePodSandBox", err.Error())
			}
		}
	})
	return false
}

func (r *run) makeSandbox(ctx context.Context, sandbox *runtimeapi.PodSandboxConfig) error {
	if r.o.LogDir != "" {
		if err := os.MkdirAll(r.o.LogDir, 0o755); err != nil {
			return fmt.Errorf("create the pod's log directory: %w", err)
		}
	}
	handler, err := r.runtimeHandler(ctx)
	if err != nil {
		return fmt.Errorf("look up the pod's RuntimeClass: %w", err)
	}
	if more, ok := r.o.Runtime.(runtimev1.Runtime); ok {
		_, err = more.RunPodSandboxWith(ctx, sandbox, handler, config.Beyond(&r.o.Options))
	} else if err = config.Plain(&r.o.Options); err == nil {
		_, err = r.o.Runtime.RunPodSandbox(ctx, sandbox, handler)
	}
	return err // the runtime's error names the call
}

func (r *run) runtimeHandler(ctx context.Context) (string, error) {
	class := r.pod.Spec.RuntimeClassName
	switch {
	case class == nil || *class == "":
		return "", nil
	case r.o.Handler == nil:
		return *class, nil
	}
	return r.o.Handler(ctx)
}

func (r *run) stopSandbox(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, stopSlack)
	defer cancel()
	if err := r.o.Runtime.StopPodSandbox(ctx, id); err != nil && !instance.Gone(err) {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	return nil
}

func (r *run) removeContainer(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, containerDeadline)
	defer cancel()
	if err := r.o.Runtime.RemoveContainer(ctx, id); err != nil && !instance.Gone(err) {
		return err
	}
	return nil
}

// resumeStart restores the pod's start time from the annotation of its sandbox.
func (r *run) resumeStart() {
	noted, err := time.Parse(time.RFC3339Nano, r.sandbox.GetAnnotations()[annotations.Started])
	if err != nil && r.sandbox.GetCreatedAt() > 0 {
		noted = instance.Time(r.sandbox.GetCreatedAt())
	}
	if !noted.IsZero() {
		r.began = beganAt(noted, r.began)
	}
}

// beganAt returns the start time for a pod that noted one, as a duration before now, so that changes of the clock do
// not matter. A note from the future comes from a clock that was set back, and counts as now.
func beganAt(noted, now time.Time) time.Time { return now.Add(-max(now.Sub(noted), 0)) }

// sweep removes old containers that no longer appear in the status, and dead sandboxes without any of the others. The
// next observation retries failed removals.
func (r *run) sweep(ctx context.Context, sandboxes []*runtimeapi.PodSandbox) {
	if r.sweeping {
		return
	}
	needed := map[string]bool{}
	for _, c := range r.containers {
		for _, i := range []*instance.Instance{c.newest, c.previous} {
			if i != nil {
				needed[i.Sandbox] = true
			}
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
		for _, id := range old {
			if err := r.removeContainer(ctx, id); err != nil {
				r.p.log.Warn("cannot remove an old container", "id", id, "error", err)
				watch.Pause(ctx, retryDelay)
			}
		}
		for _, id := range empty {
			err := r.stopSandbox(ctx, id)
			if err == nil {
				err = r.o.Runtime.RemovePodSandbox(ctx, id)
			}
			if err != nil && !instance.Gone(err) {
				r.p.log.Warn("cannot remove a sandbox that was replaced", "sandbox", id, "error", err)
				watch.Pause(ctx, retryDelay)
			}
		}
		return func() { r.sweeping = false }
	})
}
