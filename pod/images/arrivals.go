package images

import (
	"context"

	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/bulkhead-project/bulkhead/internal/broadcast"
)

// Arrivals is an image store of several pods. It notifies pods that wait for an image when another pod has pulled it.
// It is safe for concurrent use.
type Arrivals struct {
	internalapi.ImageManagerService

	pulled broadcast.Broadcast
}

// PullImage pulls an image into the store and wakes Wait.
func (a *Arrivals) PullImage(
	ctx context.Context, image *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig,
) (string, error) {
	ref, err := a.ImageManagerService.PullImage(ctx, image, auth, sandbox)
	if err == nil {
		a.pulled.Notify()
	}
	return ref, err
}

// Wait waits until an image exists. It returns false if ctx ends first.
func (a *Arrivals) Wait(ctx context.Context, name string) bool {
	for {
		next := a.pulled.Next()
		status, err := a.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: tagged(name), UserSpecifiedImage: name}, false)
		if err == nil && status.GetImage() != nil {
			return true
		}
		select {
		case <-next: // maybe for another image
		case <-ctx.Done():
			return false
		}
	}
}
