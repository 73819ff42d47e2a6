package probe_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// health answers by the service's name.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
}

func (health) Check(ctx context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	serving := grpc_health_v1.HealthCheckResponse_SERVING
	switch req.GetService() {
	case "":
	case "agent":
		sent, _ := metadata.FromIncomingContext(ctx)
		if agents := sent.Get("user-agent"); len(agents) != 1 || !strings.HasPrefix(agents[0], "kube-probe/1.") {
			return nil, status.Errorf(codes.InvalidArgument, "user agent %v", agents)
		}
	case "ill":
		serving = grpc_health_v1.HealthCheckResponse_NOT_SERVING
	case "odd":
		serving = grpc_health_v1.HealthCheckResponse_UNKNOWN
	case "slow":
		<-ctx.Done()
		return nil, ctx.Err()
	case "denied":
		return nil, status.Error(codes.PermissionDenied, "not you")
	case "huge":
		return nil, status.Error(codes.Internal, strings.Repeat("a", 1<<20))
	default:
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: serving}, nil
}

// serveGRPC serves until the test ends and returns the port.
func serveGRPC(t *testing.T, register bool, options ...grpc.ServerOption) int32 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	if register {
		grpc_health_v1.RegisterHealthServer(server, health{})
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return int32(l.Addr().(*net.TCPAddr).Port)
}

// certificate is one that nobody knows.
func certificate(t *testing.T) tls.Certificate {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return server.TLS.Certificates[0]
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	good, empty := serveGRPC(t, true), serveGRPC(t, false)
	secure := serveGRPC(t, true, grpc.Creds(credentials.NewServerTLSFromCert(new(certificate(t)))))
	web, closed := int32(serveHTTP(t, answer(200, "hello"))), int32(closedPort(t))
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connections stay in its backlog
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	quiet := int32(silent.Addr().(*net.TCPAddr).Port)
	withTLS, plain := corev1.GRPCProbeModeTLS, corev1.GRPCProbeModePlaintext
	for _, test := range []struct {
		name   string
		action corev1.GRPCAction
		want   probe.Result
		has    string
	}{
		{"serving", corev1.GRPCAction{Port: good}, probe.Success, "service healthy"},
		{"serving, no name", corev1.GRPCAction{Port: good, Service: new("")}, probe.Success, "service healthy"},
		{"serving, by its name", corev1.GRPCAction{Port: good, Service: new("agent")}, probe.Success, "service healthy"},
		{"plaintext", corev1.GRPCAction{Port: good, Mode: &plain}, probe.Success, "service healthy"},
		{"tls", corev1.GRPCAction{Port: secure, Mode: &withTLS}, probe.Success, "service healthy"},
		{"tls to plaintext", corev1.GRPCAction{Port: good, Mode: &withTLS}, probe.Failure, "error: health rpc probe failed"},
		{"plaintext to tls", corev1.GRPCAction{Port: secure}, probe.Failure, "error: "},
		{"not serving", corev1.GRPCAction{Port: good, Service: new("ill")}, probe.Failure, `service unhealthy (responded with "NOT_SERVING")`},
		{"unknown", corev1.GRPCAction{Port: good, Service: new("odd")}, probe.Failure, `service unhealthy (responded with "UNKNOWN")`},
		{"no such service", corev1.GRPCAction{Port: good, Service: new("nobody")}, probe.Failure, "unknown service"},
		{"denied", corev1.GRPCAction{Port: good, Service: new("denied")}, probe.Failure, "not you"},
		{"slow", corev1.GRPCAction{Port: good, Service: new("slow")}, probe.Failure, "timeout: health rpc did not complete within 1s"},
		{"huge answer", corev1.GRPCAction{Port: good, Service: new("huge")}, probe.Failure, "error: health rpc probe failed"},
		{"no health service", corev1.GRPCAction{Port: empty}, probe.Failure, "this server does not implement the grpc health protocol (grpc.health.v1.Health)"},
		{"http", corev1.GRPCAction{Port: web}, probe.Failure, "error: "},
		{"closed", corev1.GRPCAction{Port: closed}, probe.Failure, "connection refused"},
		{"silent", corev1.GRPCAction{Port: quiet}, probe.Failure, "timeout: "},
	} {
		t.Run(test.name, func(t *testing.T) {
			patience := 10 * time.Second
			if strings.HasPrefix(test.has, "timeout: ") {
				patience = time.Second
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			got, message, err := probe.GRPC(ctx, local, &test.action, "127.0.0.1")
			if got != test.want || err != nil || !strings.Contains(message, test.has) {
				t.Errorf("%v %.300q, %v", got, message, err)
			}
		})
	}
}
