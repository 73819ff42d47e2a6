package pod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/launch"
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

// mount reports whether the volumes of files have been written, and starts a write when one is due. Volumes in use are
// rewritten in the background.
func (r *run) mount(ctx context.Context) bool {
	if r.mounted && !r.stale || r.writing != nil || !volume.Needed(r.pod) {
		return r.mounted || !volume.Needed(r.pod)
	}
	if r.mounting != nil {
		if due := r.mountTry.Until(r.mounting.at); time.Now().Before(due) {
			r.at(due)
			return r.mounted
		}
	}
	writeCtx, cancel := context.WithTimeout(ctx, containerDeadline)
	r.stale, r.writing = false, cancel
	pod, sandbox := r.pod.DeepCopy(), r.sandbox.GetId()
	r.beside(ctx, func() func() {
		list, err := r.allocatable(writeCtx, pod, sandbox)
		if err == nil {
			err = r.p.volumes.Refresh(writeCtx, pod, list)
		}
		given := errors.Is(writeCtx.Err(), context.Canceled) // the pod is being stopped
		cancel()
		return func() {
			r.writing = nil
			if err == nil || !given {
				r.wrote(err)
			}
		}
	})
	return r.mounted
}

// wrote records the outcome of a write.
func (r *run) wrote(err error) {
	if err == nil {
		r.mounted, r.mounting, r.mountTry = true, nil, backoff.Backoff{}
		return
	}
	r.stale = true
	r.mounting = &failure{reason: reasonMount, message: err.Error(), at: time.Now()}
	r.mountTry.Next(r.mounting.at, r.mounting.at)
	if r.mounted || !r.fail(ErrStart, err) {
		r.event(nil, true, reasonMount, err.Error())
	}
}

// outdate marks the volumes for another write if they are, or are being, written.
func (r *run) outdate() { r.stale = r.mounted || r.writing != nil }

// volumeImages reports whether the images of all volumes are present, and starts missing pulls.
func (r *run) volumeImages(ctx context.Context) bool {
	all := true
	for i := range r.pod.Spec.Volumes {
		volume := &r.pod.Spec.Volumes[i]
		if volume.Image == nil {
			continue
		}
		state := r.images[volume.Name]
		if state == nil {
			state = &imageState{}
			if r.images == nil {
				r.images = make(map[string]*imageState)
			}
			r.images[volume.Name] = state
		}
		there := r.ensurePull(ctx, pull{state: state, name: volume.Image.Reference, policy: volume.Image.PullPolicy})
		all = all && there
	}
	return all
}

// imageFailure returns why an image volume that c mounts is missing, nil if no failure is known.
func (r *run) imageFailure(c *container) *failure {
	for _, mount := range c.spec.VolumeMounts {
		if state := r.images[mount.Name]; state != nil && state.failure != nil {
			return state.failure
		}
	}
	return nil
}

// imageRefs returns the references of the image volumes, by volume name.
func (r *run) imageRefs() map[string]string {
	refs := make(map[string]string, len(r.images))
	for name, state := range r.images {
		if state.image != nil {
			refs[name] = state.image.Ref
		}
	}
	return refs
}

// refresh reacts to changed objects: waiting steps are retried at once, and volumes in use get their new content.
func (r *run) refresh() {
	r.changed = r.o.AllObjects().Changed()
	r.mounting, r.mountTry = nil, backoff.Backoff{}
	if errors.Is(r.sandboxErr, volume.ErrNotFound) {
		r.sandboxTry, r.sandboxAt = backoff.Backoff{}, time.Time{} // its RuntimeClass may exist now
	}
	for _, c := range r.containers {
		if c.failure != nil && c.failure.reason == launch.ReasonConfig {
			c.retry = backoff.Backoff{}
			c.failure.at = time.Time{}
		}
	}
	r.outdate()
}

// claims is the state of the pod's claims for the next sandbox.
type claims struct {
	mounted bool
	failure *failure // why the mount failed
	delay   time.Duration
	changed <-chan struct{} // closed when a retry is worthwhile, after a failure
}

// The pauses between attempts to mount claims. A node may have to poll a claim.
const (
	firstClaimPause = 500 * time.Millisecond
	lastClaimPause  = 30 * time.Second
	// claimDeadline bounds one attempt to mount, and unclaimDeadline one to unmount.
	claimDeadline   = 3 * time.Minute
	unclaimDeadline = 30 * time.Second
)

// claim reports whether the claims are mounted for the next sandbox, and starts a mount when one is due.
func (r *run) claim(ctx context.Context) bool {
	if r.o.Claims == nil || r.claims.mounted || !volume.HasClaimed(r.p.pod) {
		return true
	}
	if r.claims.failure != nil {
		if due := r.claims.failure.at.Add(r.claims.delay); time.Now().Before(due) {
			r.at(due)
			return false
		}
	}
	r.busy = true
	mountCtx, cancel := context.WithTimeout(ctx, claimDeadline)
	r.making = cancel
	changed := r.o.Claims.Changed()
	r.beside(ctx, func() func() {
		places, err := r.o.Claims.Mount(mountCtx, r.p.pod)
		given := errors.Is(mountCtx.Err(), context.Canceled) // the pod is being stopped
		cancel()
		return func() { r.claimed(places, err, changed, given) }
	})
	return false
}

// claimed records the outcome of an attempt.
func (r *run) claimed(places map[string]volume.Place, err error, changed <-chan struct{}, given bool) {
	r.busy, r.making = false, nil
	switch {
	case err == nil:
		r.o.Claimed, r.claims = places, claims{mounted: true}
	case !given:
		r.claims.failure = &failure{reason: reasonMount, message: err.Error(), at: time.Now()}
		r.claims.delay = min(max(2*r.claims.delay, firstClaimPause), lastClaimPause)
		r.claims.changed = changed
		if !r.fail(ErrStart, err) {
			r.event(nil, true, reasonMount, err.Error())
		}
	}
}

// unmount removes the volumes of files and unmounts the claims. All sandboxes of the pod must have stopped.
func (r *run) unmount(ctx context.Context) error {
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
