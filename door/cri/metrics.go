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

// GetContainerEvents sends events until the client goes. Its header says that none is
// missed from then on.
func (r *runtimeServer) GetContainerEvents(
	_ *runtimeapi.GetEventsRequest, to grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse],
) error {
	ctx, cancel := context.WithCancel(to.Context())
	events := make(chan *runtimeapi.ContainerEventResponse)
	done := make(chan error, 1)
	established := func(runtimeapi.RuntimeService_GetContainerEventsClient) {
		_ = to.SendHeader(nil) // a client that has gone is noticed by what is sent to it
	}
	go func() { done <- r.s.GetContainerEvents(ctx, events, established) }()
	for {
		select {
		case event := <-events:
			if err := to.Send(event); err != nil {
				cancel()
				<-done //nolint:errcheck // it ends since the client has gone
				return err
			}
		case err := <-done:
			cancel()
			return err
		}
	}
}

// part is how many items of a list one message of a stream has: far below the most that
// a message may hold.
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
