package supervisor

import (
	"context"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/image"
	"github.com/bulkhead-project/bulkhead/supervisor/api"
)

// puller is the engine's image service with the progress of pulls told to who
// watches the pod.
type puller struct {
	internalapi.ImageManagerService
	images *image.Store
	log    *outbox
}

// PullImage pulls like the engine's, with the user's own credentials.
func (p puller) PullImage(ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, config *runtimeapi.PodSandboxConfig) (string, error) {
	if auth != nil {
		return p.ImageManagerService.PullImage(ctx, spec, auth, config)
	}
	img, err := p.images.Pull(ctx, spec.GetImage(), image.PullOptions{
		Progress: func(g image.Progress) { p.log.put(api.Message{Progress: progress(spec.GetImage(), g)}) },
	})
	return img.ID, err
}

func progress(name string, g image.Progress) *api.Progress {
	state := "pulling"
	if g.Done {
		state = "done"
	}
	return &api.Progress{Image: name, Blob: g.Digest, Total: g.Total, Done: g.Offset, State: state}
}
