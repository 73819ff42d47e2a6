package pod

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/config"
	"github.com/bulkhead-project/bulkhead/pod/images"
	"github.com/bulkhead-project/bulkhead/pod/plan"
	"github.com/bulkhead-project/bulkhead/pod/podspec"
)

// forgetImages forgets the images that c needs. The next start looks them up again, because they may have been removed.
func (r *run) forgetImages(c *container) {
	c.Image = plan.Image{}
	for _, mount := range c.Spec.VolumeMounts {
		if state := r.Images[mount.Name]; state != nil && !state.Pulling {
			*state = plan.Image{}
		}
	}
}

// pullLate records that a pull waits after a failure.
func (r *run) pullLate(p plan.Wanted) {
	failure := p.Failure
	failure.Reason = images.ReasonBackOff
	failure.Message = fmt.Sprintf("Back-off pulling image %q: %s", p.Name, failure.Message)
	r.event(p.Container, true, "BackOff", failure.Message)
}

// pull finds or pulls an image, beside the loop.
func (r *run) pull(ctx context.Context, p plan.Wanted) {
	p.Pulling = true
	sandbox := config.Sandbox(&r.o.Options, 0)
	fetcher := &images.Fetcher{Images: r.o.Images, Options: &r.o.Options, Event: func(warning bool, reason, message string) {
		r.inLoop(ctx, func() { r.event(p.Container, warning, reason, message) })
	}}
	r.beside(ctx, func() func() {
		found, failed := fetcher.Fetch(ctx, p.Name, p.Policy, sandbox)
		at := time.Now()
		return func() {
			if p.Container != nil && p.Container.Spec.Image != p.Name {
				return // another image is wanted by now, and may be on its way
			}
			p.Pulling = false
			if failed != nil {
				p.Fail(failed.Reason, failed.Message, at)
				if p.Container != nil && p.Container.Kind == podspec.Ephemeral || !r.fail(ErrImage, failed.Err) {
					r.event(p.Container, true, "Failed", failed.Message)
				}
				r.await(ctx, p)
				return
			}
			*p.Image = plan.Image{Found: found}
			r.event(p.Container, false, "Pulled", found.How)
		}
	})
}

// await clears the failure of a pull when another client has pulled the image.
func (r *run) await(ctx context.Context, p plan.Wanted) {
	failed := p.Failure
	absent := failed.Reason == images.ReasonPull && p.Policy != corev1.PullAlways || failed.Reason == images.ReasonNeverPull
	if r.o.Arrival == nil || !absent {
		return
	}
	until, cancel := context.WithDeadline(ctx, p.Retry.Until(failed.At))
	r.beside(ctx, func() func() {
		defer cancel()
		come := r.o.Arrival(until, p.Name)
		return func() {
			if come && p.Failure == failed {
				p.Failure = nil
			}
		}
	})
}
