package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/internal/retry"
	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/launch"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/volume"
)

// allocatable returns the resources of a container without limits in the sandbox, if the pod refers to resources. It
// calls the runtime, so it must run beside the loop.
func (r *run) allocatable(ctx context.Context, pod *corev1.Pod, sandbox string) (corev1.ResourceList, error) {
	if r.o.Allocatable == nil || !config.RefersToResources(pod) {
		return nil, nil
	}
	list, err := r.o.Allocatable(ctx, sandbox)
	if err != nil {
		return nil, fmt.Errorf("ask for the size of the pod's VM: %w", err)
	}
	return list, nil
}

const reasonMount = "FailedMount"

// write writes the volumes of files, beside the loop.
func (r *run) write(ctx context.Context) {
	f := &r.Files
	f.Stale, f.Writing = false, true
	pod, sandbox := r.Pod.DeepCopy(), r.Sandbox.GetId()
	r.try(ctx, plan.WriteFiles, containerDeadline, func(ctx context.Context) error {
		list, err := r.allocatable(ctx, pod, sandbox)
		if err != nil {
			return err
		}
		return r.p.volumes.Refresh(ctx, pod, list)
	}, func(err error, given bool) {
		f.Writing = false
		if err == nil {
			f.Written, f.Try = true, plan.Try{}
			return
		}
		if f.Stale = true; given {
			return
		}
		f.Fail(reasonMount, err.Error(), time.Now())
		if f.Written || !r.fail(ErrStart, err) {
			r.event(nil, true, reasonMount, err.Error())
		}
	})
}

// outdate marks the volumes for another write if they are, or are being, written.
func (r *run) outdate() { r.Files.Stale = r.Files.Written || r.Files.Writing }

// imageFailure returns why an image volume that c mounts is missing, nil if no failure is known.
func (r *view) imageFailure(c *container) *plan.Failure {
	for _, mount := range c.Spec.VolumeMounts {
		if state := r.Images[mount.Name]; state != nil && state.Failure != nil {
			return state.Failure
		}
	}
	return nil
}

// imageRefs returns the references of the image volumes, by volume name.
func (r *view) imageRefs() map[string]string {
	refs := make(map[string]string, len(r.Images))
	for name, state := range r.Images {
		if state.Found != nil {
			refs[name] = state.Found.Ref
		}
	}
	return refs
}

// refresh reacts to changed objects: waiting steps are retried at once, and volumes in use get their new content.
func (r *run) refresh() {
	r.changed = r.o.AllObjects().Changed()
	r.Files.Try = plan.Try{}
	if errors.Is(r.SandboxErr, volume.ErrNotFound) {
		r.SandboxTry = plan.Try{} // its RuntimeClass may exist now
	}
	for _, c := range r.Containers {
		if c.Failure != nil && c.Failure.Reason == launch.ReasonConfig {
			c.Retry = backoff.Backoff{}
			c.Failure.At = time.Time{}
		}
	}
	r.outdate()
}

// The pauses between attempts to mount claims. A node may have to poll a claim.
const (
	firstClaimPause = 500 * time.Millisecond
	lastClaimPause  = 30 * time.Second
	// claimDeadline bounds one attempt to mount, and unclaimDeadline one to unmount.
	claimDeadline   = 3 * time.Minute
	unclaimDeadline = 30 * time.Second
)

// claim mounts the claims for the next sandbox, beside the loop.
func (r *sandboxes) claim(ctx context.Context) {
	r.Busy = true
	changed := r.o.Claims.Changed()
	var places map[string]volume.Place
	r.try(ctx, plan.Claim, claimDeadline, func(ctx context.Context) (err error) {
		places, err = r.o.Claims.Mount(ctx, r.p.pod)
		return err
	}, func(err error, given bool) {
		r.Busy = false
		switch {
		case err == nil:
			r.unclaimed()
			r.o.Claimed, r.Claims.Mounted = places, true
		case !given:
			r.Claims.Retry, r.claims = time.Now().Add(r.pauses.Next()), changed
			if !r.fail(ErrStart, err) {
				r.event(nil, true, reasonMount, err.Error())
			}
		}
	})
}

// unclaimed makes the next sandbox mount the claims again.
func (r *sandboxes) unclaimed() {
	r.Claims, r.claims = plan.Claims{Mounted: r.o.Claims == nil || !volume.HasClaimed(r.p.pod)}, nil
	r.pauses = retry.Pauses{First: firstClaimPause, Last: lastClaimPause}
}

// unmount removes the volumes of files and unmounts the claims. All sandboxes of the pod must have stopped.
func (r *sandboxes) unmount(ctx context.Context) error {
	if err := r.p.unclaim(ctx); err != nil {
		r.p.log.Warn("the pod's claims are still mounted", "error", err)
		r.o.Claims.Release()
	}
	return r.p.unmount()
}

func (p *Pod) unmount() error {
	if !volume.Needed(p.pod) {
		return nil
	}
	return p.volumes.Remove()
}

// unclaim unmounts all claims, also for a pod with a lost specification.
func (p *Pod) unclaim(ctx context.Context) error {
	if p.options.Claims == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, unclaimDeadline)
	defer cancel()
	return p.options.Claims.Unmount(ctx)
}
