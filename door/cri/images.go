package cri

import (
	"context"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	service "github.com/bulkhead-project/bulkhead/cri"
)

// imageServer forwards a client's calls to the service, like runtimeServer.
type imageServer struct {
	runtimeapi.UnsafeImageServiceServer
	s *service.Service
}

func (i *imageServer) ListImages(ctx context.Context, q *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	all, err := i.s.ListImages(ctx, q.GetFilter())
	return &runtimeapi.ListImagesResponse{Images: all}, err
}

func (i *imageServer) StreamImages(
	q *runtimeapi.StreamImagesRequest, to grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse],
) error {
	all, err := i.s.ListImages(to.Context(), q.GetFilter())
	return each(all, err, func(part []*runtimeapi.Image) error {
		return to.Send(&runtimeapi.StreamImagesResponse{Images: part})
	})
}

func (i *imageServer) ImageStatus(ctx context.Context, q *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return i.s.ImageStatus(ctx, q.GetImage(), q.GetVerbose())
}

func (i *imageServer) PullImage(ctx context.Context, q *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	ref, err := i.s.PullImage(ctx, q.GetImage(), q.GetAuth(), q.GetSandboxConfig())
	return &runtimeapi.PullImageResponse{ImageRef: ref}, err
}

func (i *imageServer) RemoveImage(ctx context.Context, q *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return &runtimeapi.RemoveImageResponse{}, i.s.RemoveImage(ctx, q.GetImage())
}

func (i *imageServer) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return i.s.ImageFsInfo(ctx)
}
