package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/backoff"
	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// imageState is the state of a container's image. Each start begins with a new one.
type imageState struct {
	pulling bool
	image   *images.Image // nil until the image is present
	failure *failure
	retry   backoff.Backoff
}

// ensureImage reports whether c's image is present. If not, it starts a pull, unless one is running or has just failed.
func (r *run) ensureImage(ctx context.Context, c *container) bool {
	return r.ensurePull(ctx, pull{c: c, state: &c.image, name: c.spec.Image, policy: c.spec.ImagePullPolicy})
}

// forgetImages forgets the images that c needs. The next start looks them up again, because they may have been removed.
func (r *run) forgetImages(c *container) {
	c.image = imageState{}
	for _, mount := range c.spec.VolumeMounts {
		if state := r.images[mount.Name]; state != nil && !state.pulling {
			delete(r.images, mount.Name)
		}
	}
}

// pull is a wanted image, for a container or (c is nil) a volume.
type pull struct {
	c      *container
	state  *imageState
	name   string
	policy corev1.PullPolicy
}

func (r *run) ensurePull(ctx context.Context, p pull) bool {
	state := p.state
	if state.image != nil || state.pulling {
		return state.image != nil
	}
	if state.failure != nil {
		due := state.retry.Until(state.failure.at)
		if time.Now().Before(due) {
			if state.failure.reason == images.ReasonPull {
				state.failure.reason = images.ReasonBackOff
				state.failure.message = fmt.Sprintf("Back-off pulling image %q: %s", p.name, state.failure.message)
				r.event(p.c, true, "BackOff", state.failure.message)
			}
			r.at(due)
			return false
		}
	}
	state.pulling = true
	sandbox := config.Sandbox(&r.o.Options, 0)
	fetcher := &images.Fetcher{Images: r.o.Images, Options: &r.o.Options, Event: func(warning bool, reason, message string) {
		r.inLoop(ctx, func() { r.event(p.c, warning, reason, message) })
	}}
	r.beside(ctx, func() func() {
		found, failed := fetcher.Fetch(ctx, p.name, p.policy, sandbox)
		at := time.Now()
		return func() {
			if p.c != nil && p.c.spec.Image != p.name {
				return // another image is wanted by now, and may be on its way
			}
			state.pulling = false
			if failed != nil {
				state.failure = &failure{reason: failed.Reason, message: failed.Message, at: at}
				state.retry.Next(at, at)
				if p.c != nil && p.c.kind == podspec.Ephemeral || !r.fail(ErrImage, failed.Err) {
					r.event(p.c, true, "Failed", failed.Message)
				}
				r.await(ctx, p)
				return
			}
			*state = imageState{image: found}
			r.event(p.c, false, "Pulled", found.How)
		}
	})
	return false
}

// await clears the failure of a pull when another client has pulled the image.
func (r *run) await(ctx context.Context, p pull) {
	failed := p.state.failure
	absent := failed.reason == images.ReasonPull && p.policy != corev1.PullAlways || failed.reason == images.ReasonNeverPull
	if r.o.Arrival == nil || !absent {
		return
	}
	until, cancel := context.WithDeadline(ctx, p.state.retry.Until(failed.at))
	r.beside(ctx, func() func() {
		defer cancel()
		come := r.o.Arrival(until, p.name)
		return func() {
			if come && p.state.failure == failed {
				p.state.failure = nil
			}
		}
	})
}
