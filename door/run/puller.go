package run

import (
	"context"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/image"
)

// puller is the engine's image service with the progress of pulls told to who
// watches the pod.
type puller struct {
	internalapi.ImageManagerService
	images func() *image.Store
	log    *outbox
}

// PullImage pulls like the engine's, with the user's own credentials.
func (p puller) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	var own *image.Auth
	if auth.GetUsername() != "" {
		own = &image.Auth{Username: auth.GetUsername(), Password: auth.GetPassword()}
	}
	img, err := p.images().Pull(ctx, spec.GetImage(), image.PullOptions{
		Auth:     own,
		Progress: func(g image.Progress) { p.log.put(api.Message{Progress: progress(spec.GetImage(), g)}) },
	})
	return img.ID, err
}

// ImageStatus looks a name up as the pod's command means it.
func (p puller) ImageStatus(ctx context.Context, spec *runtimeapi.ImageSpec, verbose bool) (*runtimeapi.ImageStatusResponse, error) {
	if img, err := p.images().Resolve(spec.GetImage()); err == nil {
		spec = &runtimeapi.ImageSpec{Image: img.ID, UserSpecifiedImage: spec.GetUserSpecifiedImage()}
	}
	return p.ImageManagerService.ImageStatus(ctx, spec, verbose)
}

func progress(name string, g image.Progress) *api.Progress {
	state := "pulling"
	if g.Done {
		state = "done"
	}
	return &api.Progress{Image: name, Blob: g.Digest, Total: g.Total, Done: g.Offset, State: state}
}
