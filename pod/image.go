package pod

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// imageState is where a container's image stands, anew for each of its starts.
type imageState struct {
	pulling bool
	image   *runtimeapi.Image // nil until it is there
	ref     string
	failure *failure
	retry   backoff
}

// The kubelet's reasons for a container that waits for its image.
const (
	reasonPull      = "ErrImagePull"
	reasonBackOff   = "ImagePullBackOff"
	reasonInspect   = "ImageInspectError"
	reasonNeverPull = "ErrImageNeverPull"
)

// ensureImage tells whether c's image is there, and has it fetched if it is
// neither there nor on its way nor failed a moment ago.
func (r *run) ensureImage(ctx context.Context, c *container) bool {
	return r.ensurePull(ctx, pull{c: c, state: &c.image, name: c.spec.Image, policy: c.spec.ImagePullPolicy})
}

// forgetImages has the images that c is made from looked up again before it is
// tried again: somebody may have removed one since.
func (r *run) forgetImages(c *container) {
	c.image = imageState{}
	for _, mount := range c.spec.VolumeMounts {
		if state := r.images[mount.Name]; state != nil && !state.pulling {
			delete(r.images, mount.Name)
		}
	}
}

// pull is an image that somebody wants: a container, or with none a volume.
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
		due := state.retry.until(state.failure.at)
		if time.Now().Before(due) {
			if state.failure.reason == reasonPull {
				state.failure.reason = reasonBackOff
				state.failure.message = fmt.Sprintf("Back-off pulling image %q: %s", p.name, state.failure.message)
				r.event(p.c, true, "BackOff", state.failure.message)
			}
			r.at(due)
			return false
		}
	}
	state.pulling = true
	config := sandboxConfig(r.o, 0)
	r.beside(ctx, func() func() {
		found, failed := r.fetch(ctx, p, config)
		return func() {
			state.pulling = false
			if failed != nil {
				state.failure = failed
				state.retry.next(failed.at, failed.at)
				if p.c != nil && p.c.kind == ephemeral || !r.fail(ErrImage, failed.err) {
					r.event(p.c, true, "Failed", failed.message)
				}
				return
			}
			state.image, state.ref, state.failure, state.retry = found.image, found.ref, nil, backoff{}
			r.event(p.c, false, "Pulled", found.how)
		}
	})
	return false
}

// fetched is an image that is there.
type fetched struct {
	image *runtimeapi.Image
	ref   string
	how   string // it came there, in the kubelet's words
}

// fetch finds the image in the store or pulls it, by the policy.
func (r *run) fetch(ctx context.Context, p pull, config *runtimeapi.PodSandboxConfig) (fetched, *failure) {
	began := time.Now()
	spec := &runtimeapi.ImageSpec{Image: tagged(p.name), UserSpecifiedImage: p.name}
	fail := func(reason string, err error) (fetched, *failure) {
		return fetched{}, &failure{reason: reason, message: err.Error(), err: err, at: time.Now()}
	}
	status, err := r.o.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		return fail(reasonInspect, fmt.Errorf("look up image %s: %w", p.name, err))
	}
	if image := status.GetImage(); image != nil && p.policy != corev1.PullAlways {
		return fetched{image, image.GetId(), fmt.Sprintf("Container image %q already present on machine", p.name)}, nil
	} else if image == nil && p.policy == corev1.PullNever {
		none, failed := fail(reasonNeverPull, fmt.Errorf("image %s is not here and its pull policy is Never", p.name))
		failed.message = fmt.Sprintf("Container image %q is not present with pull policy of Never", p.name)
		return none, failed
	}
	r.tell(ctx, func() { r.event(p.c, false, "Pulling", fmt.Sprintf("Pulling image %q", p.name)) })
	asked := time.Now()
	ref, err := r.pullImage(ctx, p, spec, config)
	took := time.Since(asked)
	if err != nil {
		if !strings.Contains(err.Error(), p.name) {
			err = fmt.Errorf("pull image %s: %w", p.name, err)
		}
		return fail(reasonPull, err)
	}
	status, err = r.o.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}, false)
	if err != nil || status.GetImage() == nil {
		return fail(reasonInspect, fmt.Errorf("look up image %s after its pull: %w", p.name, orGone(err)))
	}
	return fetched{status.GetImage(), ref, fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		p.name, took.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), status.GetImage().GetSize())}, nil
}

func orGone(err error) error {
	if err == nil {
		return fmt.Errorf("it is gone")
	}
	return err
}

// tagged adds the tag that a name without one means.
func tagged(name string) string {
	last := name[strings.LastIndex(name, "/")+1:]
	if strings.ContainsAny(last, ":@") {
		return name
	}
	return name + ":latest"
}
