package images

import (
	"context"
	"errors"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/image"
)

// Puller is the engine's image service. It also sends the progress of pulls to the client that follows the pod.
type Puller struct {
	internalapi.ImageManagerService
	Store func(name string) *image.Store
	Add   func(api.Message)
}

// PullImage pulls an image with the user's credentials.
func (p Puller) PullImage(
	ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	var own *image.Auth
	if auth.GetUsername() != "" {
		own = &image.Auth{Username: auth.GetUsername(), Password: auth.GetPassword()}
	}
	img, err := p.Store(spec.GetUserSpecifiedImage()).Pull(ctx, spec.GetImage(), image.PullOptions{
		Auth:     own,
		Progress: func(g image.Progress) { p.Add(api.Message{Progress: progress(spec.GetImage(), g)}) },
	})
	return img.ID, err
}

// ImageStatus looks up an image by name in the environment of the pod's command. A name without an image may be an
// id or a prefix of one.
func (p Puller) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	written := spec.GetUserSpecifiedImage()
	store := p.Store(written)
	img, err := store.Resolve(spec.GetImage())
	if errors.Is(err, image.ErrNotFound) && written != "" {
		img, err = store.Resolve(written)
	}
	if errors.Is(err, image.ErrAmbiguous) {
		return nil, err
	}
	if err == nil {
		spec = &runtimeapi.ImageSpec{Image: img.ID, UserSpecifiedImage: written}
	}
	return p.ImageManagerService.ImageStatus(ctx, spec, verbose)
}
