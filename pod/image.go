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
	state := &c.image
	if state.image != nil || state.pulling {
		return state.image != nil
	}
	if state.failure != nil {
		due := state.retry.until(state.failure.at)
		if time.Now().Before(due) {
			if state.failure.reason == reasonPull {
				state.failure.reason = reasonBackOff
				state.failure.message = fmt.Sprintf("Back-off pulling image %q: %s", c.spec.Image, state.failure.message)
				r.event(c, true, "BackOff", state.failure.message)
			}
			r.at(due)
			return false
		}
	}
	state.pulling = true
	r.beside(ctx, func() func() {
		began := time.Now()
		image, ref, failed := r.fetch(ctx, c)
		return func() {
			state.pulling = false
			if failed != nil {
				state.failure = failed
				state.retry.next(failed.at, failed.at)
				if c.kind == ephemeral || !r.fail(ErrImage, failed.err) {
					r.event(c, true, "Failed", failed.message)
				}
				return
			}
			state.image, state.ref, state.failure, state.retry = image, ref, nil, backoff{}
			r.event(c, false, "Pulled", fmt.Sprintf("Image %q is there after %v", c.spec.Image, time.Since(began).Round(time.Millisecond)))
		}
	})
	return false
}

// fetch finds the image in the store or pulls it, by the container's policy.
func (r *run) fetch(ctx context.Context, c *container) (*runtimeapi.Image, string, *failure) {
	spec := &runtimeapi.ImageSpec{Image: tagged(c.spec.Image), UserSpecifiedImage: c.spec.Image}
	fail := func(reason string, err error) (*runtimeapi.Image, string, *failure) {
		return nil, "", &failure{reason: reason, message: err.Error(), err: err, at: time.Now()}
	}
	policy := c.spec.ImagePullPolicy
	status, err := r.o.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		return fail(reasonInspect, fmt.Errorf("look up image %s: %w", c.spec.Image, err))
	}
	if image := status.GetImage(); image != nil && policy != corev1.PullAlways {
		return image, image.GetId(), nil
	} else if image == nil && policy == corev1.PullNever {
		return fail(reasonNeverPull, fmt.Errorf("image %s is not here and its pull policy is Never", c.spec.Image))
	}
	pulling := func() { r.event(c, false, "Pulling", fmt.Sprintf("Pulling image %q", c.spec.Image)) }
	select {
	case r.done <- pulling:
	case <-ctx.Done():
	}
	ref, err := r.o.Images.PullImage(ctx, spec, nil, sandboxConfig(r.o, 0))
	if err != nil {
		if !strings.Contains(err.Error(), c.spec.Image) {
			err = fmt.Errorf("pull image %s: %w", c.spec.Image, err)
		}
		return fail(reasonPull, err)
	}
	status, err = r.o.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}, false)
	if err != nil || status.GetImage() == nil {
		return fail(reasonInspect, fmt.Errorf("look up image %s after its pull: %w", c.spec.Image, orGone(err)))
	}
	return status.GetImage(), ref, nil
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
