package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
)

const (
	maxMessage = 64 << 10 // bytes of a gRPC answer
	maxHeaders = 16 << 10
)

// GRPC asks the gRPC health service (grpc.health.v1) on a port of the pod. SERVING is a Success, anything else a
// Failure with the reason. host is the pod's address, for messages. The server's certificate is not verified.
func GRPC(ctx context.Context, dial Dialer, action *corev1.GRPCAction, host string) (Result, string, error) {
	if host == "" {
		host = noHost
	}
	address := net.JoinHostPort(host, strconv.Itoa(int(action.Port)))
	patience := "its deadline"
	if deadline, set := ctx.Deadline(); set {
		patience = rounded(time.Until(deadline)).String()
	}
	secured := insecure.NewCredentials()
	if action.Mode != nil && *action.Mode == corev1.GRPCProbeModeTLS {
		secured = credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}) // probes do not verify the server's identity
	}
	ctx, cancel := context.WithCancel(ctx) // also ends open dials
	defer cancel()
	l := &line{ctx: ctx, dial: dial}
	client, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(secured),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return l.connect(int(action.Port)) }),
		grpc.WithUserAgent(probeAgent),
		grpc.WithDisableRetry(), grpc.WithDisableServiceConfig(), grpc.WithNoProxy(),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)),
	)
	if err != nil {
		return Unknown, "", fmt.Errorf("create a gRPC client: %w", err)
	}
	defer client.Close()
	req := &grpc_health_v1.HealthCheckRequest{}
	if action.Service != nil {
		req.Service = *action.Service
	}
	res, err := grpc_health_v1.NewHealthClient(client).Check(ctx, req)
	late := ctx.Err() != nil || status.Code(err) == codes.DeadlineExceeded
	connected, failed := l.outcome()
	switch {
	case errors.Is(failed, ErrNotAsked):
		return Unknown, "", failed
	case err != nil && late && !connected:
		return Failure, fmt.Sprintf("timeout: failed to connect service %q within %s", address, patience), nil
	case err != nil && failed != nil && !connected:
		return Failure, fmt.Sprintf("error: failed to connect service at %q: %v", address, Stable(failed.Error())), nil
	case err != nil && late:
		return Failure, "timeout: health rpc did not complete within " + patience, nil
	case status.Code(err) == codes.Unimplemented:
		return Failure, "error: this server does not implement the grpc health protocol (grpc.health.v1.Health): " +
			status.Convert(err).Message(), nil
	case err != nil:
		return Failure, fmt.Sprintf("error: health rpc probe failed: %s", Stable(err.Error())), nil
	case res.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING:
		return Failure, fmt.Sprintf("service unhealthy (responded with %q)", res.GetStatus()), nil
	}
	return Success, "service healthy", nil
}

// rounded removes the elapsed time from a timeout, so that events have the same text each time.
func rounded(left time.Duration) time.Duration {
	if left > time.Second/2 {
		return left.Round(time.Second)
	}
	return left.Round(10 * time.Millisecond)
}
