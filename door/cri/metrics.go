package cri

import (
	"context"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (r *runtimeServer) ListMetricDescriptors(
	ctx context.Context, _ *runtimeapi.ListMetricDescriptorsRequest,
) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	all, err := r.s.ListMetricDescriptors(ctx)
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: all}, err
}

func (r *runtimeServer) ListPodSandboxMetrics(
	ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest,
) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	all, err := r.s.ListPodSandboxMetrics(ctx)
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: all}, err
}

func (r *runtimeServer) StreamPodSandboxMetrics(
	_ *runtimeapi.StreamPodSandboxMetricsRequest, to grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse],
) error {
	all, err := r.s.ListPodSandboxMetrics(to.Context())
	return each(all, err, func(part []*runtimeapi.PodSandboxMetrics) error {
		return to.Send(&runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part})
	})
}

// GetContainerEvents sends events until the client disconnects. After its header, no event is missed.
func (r *runtimeServer) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, to grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	ctx, cancel := context.WithCancel(to.Context())
	events := make(chan *runtimeapi.ContainerEventResponse)
	done := make(chan error, 1)
	established := func(runtimeapi.RuntimeService_GetContainerEventsClient) {
		_ = to.SendHeader(nil) // sending events detects a client that has disconnected
	}
	go func() { done <- r.s.GetContainerEvents(ctx, events, established) }()
	for {
		select {
		case event := <-events:
			if err := to.Send(event); err != nil {
				cancel()
				<-done //nolint:errcheck // it ends because the client has disconnected
				return err
			}
		case err := <-done:
			cancel()
			return err
		}
	}
}

// part is the number of list items in one message of a stream. It keeps messages far below their size limit.
const part = 100

// each sends a list in parts.
func each[T any](all []T, err error, send func([]T) error) error {
	for err == nil && len(all) > 0 {
		n := min(len(all), part)
		err = send(all[:n])
		all = all[n:]
	}
	return err
}
