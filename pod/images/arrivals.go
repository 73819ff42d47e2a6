package images

import (
	"context"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/broadcast"
)

// Arrivals is the image store of many pods, which tells those that wait for an image when another one has pulled it. Its
// methods may be called at once.
type Arrivals struct {
	internalapi.ImageManagerService

	pulled broadcast.Broadcast
}

// PullImage is the store's.
func (a *Arrivals) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	ref, err := a.ImageManagerService.PullImage(ctx, image, auth, sandbox)
	if err == nil {
		a.pulled.Tell()
	}
	return ref, err
}

// Wait waits until an image is there. It is false when ctx has ended before.
func (a *Arrivals) Wait(ctx context.Context, name string) bool {
	for {
		next := a.pulled.Next()
		status, err := a.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: tagged(name), UserSpecifiedImage: name}, false)
		if err == nil && status.GetImage() != nil {
			return true
		}
		select {
		case <-next: // another image, maybe
		case <-ctx.Done():
			return false
		}
	}
}
