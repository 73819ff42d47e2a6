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
	// ReasonVMKilled is that of an event when the pod's VM ended under it, and of the status of a pod that
	// ended with it.
	ReasonVMKilled  = "VMKilled"
	messageVMKilled = "The pod's VM ended unexpectedly, and the containers that ran in it with it."
)

// settle tells whether what is said of the containers can be relied on. Those of
// a sandbox that has died end with it, whatever state they are said to be in:
// the runtime is asked once for each dead sandbox to stop it, and looked at anew.
func (r *run) settle(ctx context.Context) bool {
	if r.starting != nil && (!r.ready() || r.sandbox.GetId() != r.starting.sandbox) {
		r.giveUpStart()
		return false
	}
	if r.sandbox == nil || r.ready() || r.busy || r.sandbox.GetId() == r.settled {
		return !r.busy
	}
	id := r.sandbox.GetId()
	r.busy = true
	r.beside(ctx, func() func() {
		err := r.stopSandbox(ctx, id)
		return func() {
			r.busy = false
			if err == nil {
				r.settled = id
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

// ensureSandbox tells whether the pod has a sandbox that is up, and has one
// made if it has none and none is on its way. A dead one is replaced.
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
		given := errors.Is(makeCtx.Err(), context.Canceled) // up, because the pod is stopped
		cancel()
		return func() {
			r.busy, r.making = false, nil
			if err != nil && given {
				return
			}
			r.sandboxErr, r.claims = err, claims{} // they are looked at before each
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
	return err // which says what was done
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

// resumeStart takes over when the pod began from its first run, as its
// sandboxes have it noted.
func (r *run) resumeStart() {
	noted, err := time.Parse(time.RFC3339Nano, r.sandbox.GetAnnotations()[annotations.Started])
	if err != nil && r.sandbox.GetCreatedAt() > 0 {
		noted = instance.Time(r.sandbox.GetCreatedAt())
	}
	if !noted.IsZero() {
		r.began = beganAt(noted, r.began)
	}
}

// beganAt is when a pod began of which it was noted when, as so long before now: what is counted from there goes on
// whatever the clock is set to. A note from the future is one of a clock that was set back.
func beganAt(noted, now time.Time) time.Time { return now.Add(-max(now.Sub(noted), 0)) }

// sweep removes the containers that no longer appear in the status, and the dead sandboxes that have none of the others. A
// removal that fails is tried again when the pod is next looked at.
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
