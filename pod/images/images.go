// Package images gets the images of a pod: it finds them in the runtime's store, or pulls them with the pod's
// credentials.
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

// Fetcher gets the images of one pod. It is safe for concurrent use.
type Fetcher struct {
	Images  internalapi.ImageManagerService
	Options *config.Options
	// Event is called for each event, on the goroutine of Fetch.
	Event func(warning bool, reason, message string)
}

// Image is an image in the store.
type Image struct {
	*runtimeapi.Image
	Ref string // the reference to create a container from
	How string // the kubelet's message on how the image was found
}

// Failure is the reason for a missing image: an error with the kubelet's reason and message.
type Failure struct {
	Reason, Message string
	Err             error
}

func fail(reason string, err error) *Failure {
	return &Failure{Reason: reason, Message: err.Error(), Err: err}
}

// Fetch finds the image in the store or pulls it, depending on the policy. sandbox is the pod's configuration.
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
		return nil, fail(ReasonInspect, fmt.Errorf("look up image %s after its pull: %w", name, orNotFound(err)))
	}
	return &Image{status.GetImage(), ref, fmt.Sprintf("Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		name, took.Truncate(time.Millisecond), time.Since(began).Truncate(time.Millisecond), status.GetImage().GetSize())}, nil
}

// pull tries the pod's credentials for the image one after the other, or pulls without any if there are none.
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

func orNotFound(err error) error {
	if err == nil {
		return fmt.Errorf("it no longer exists")
	}
	return err
}

// tagged adds the default tag to a name without one.
func tagged(name string) string {
	last := name[strings.LastIndex(name, "/")+1:]
	if strings.ContainsAny(last, ":@") {
		return name
	}
	return name + ":latest"
}
