// Package images has the images of a pod where its containers can be made from
// them: found in the runtime's store, or pulled with the pod's credentials.
package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/pod/config"
)

// The kubelet's reasons for a container that waits for its image.
const (
	ReasonPull      = "ErrImagePull"
	ReasonBackOff   = "ImagePullBackOff"
	ReasonInspect   = "ImageInspectError"
	ReasonNeverPull = "ErrImageNeverPull"
)

// Fetcher has the images of one pod. Its methods may be called at once.
type Fetcher struct {
	Images  internalapi.ImageManagerService
	Options *config.Options
	// Event is told what happens meanwhile, from the goroutine of Fetch.
	Event func(warning bool, reason, message string)
}

// Image is one that is there.
type Image struct {
	*runtimeapi.Image
	Ref string // what a container is created from
	How string // it came there, in the kubelet's words
}

// Failure is why an image is not there: an error with the kubelet's reason and
// its text for it.
type Failure struct {
	Reason, Message string
	Err             error
}

func fail(reason string, err error) *Failure {
	return &Failure{Reason: reason, Message: err.Error(), Err: err}
}

// Fetch finds the image in the store or pulls it, by the policy. sandbox is the
// pod's configuration.
func (f *Fetcher) Fetch(
	ctx context.Context, name string, policy corev1.PullPolicy, sandbox *runtimeapi.PodSandboxConfig,
) (*Image, *Failure) {
	began := time.Now()
	spec := &runtimeapi.ImageSpec{Image: tagged(name), UserSpecifiedImage: name}
	status, err := f.Images.ImageStatus(ctx, spec, false)
	if err != nil {
		return nil, fail(ReasonInspect, fmt.Errorf("look up image %s: %w", name, err))
	}
	if image := status.GetImage(); image != nil && policy != corev1.PullAlways {
		return &Image{image, image.GetId(), fmt.Sprintf("Container image %q already present on machine", name)}, nil
	} else if image == nil && policy == corev1.PullNever {
		failed := fail(ReasonNeverPull, fmt.Errorf("image %s is not in the store, and its pull policy is Never", name))
		failed.Message = fmt.Sprintf("Container image %q is not present with pull policy of Never", name)
		return nil, failed
	}
	f.Event(false, "Pulling", fmt.Sprintf("Pulling image %q", name))
	asked := time.Now()
	ref, err := f.pull(ctx, name, spec, sandbox)
	took := time.Since(asked)
	if err != nil {
		if !strings.Contains(err.Error(), name) {
			err = fmt.Errorf("pull image %s: %w", name, err)
		}
		return nil, fail(ReasonPull, err)
	}
	status, err = f.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref}, false)
	if err != nil || status.GetImage() == nil {
		return nil, fail(ReasonInspect, fmt.Errorf("look up image %s after its pull: %w", name, orGone(err)))
	}
	return &Image{status.GetImage(), ref, fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		name, took.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), status.GetImage().GetSize())}, nil
}

// pull pulls with one after the other of the pod's credentials for the image,
// without any where there are none.
func (f *Fetcher) pull(ctx context.Context, name string, spec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	list, missing, err := pullSecrets(ctx, f.Options)
	if err != nil {
		return "", err
	}
	if len(missing) > 0 {
		f.Event(true, "FailedToRetrieveImagePullSecret", fmt.Sprintf(
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	auths := authsFor(list, name)
	if len(auths) == 0 {
		return f.Images.PullImage(ctx, spec, nil, sandbox)
	}
	var errs []error
	for _, auth := range auths {
		ref, err := f.Images.PullImage(ctx, spec, auth, sandbox)
		if err == nil {
			return ref, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

func orGone(err error) error {
	if err == nil {
		return fmt.Errorf("it no longer exists")
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
