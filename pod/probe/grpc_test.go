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

// certificate returns a self-signed certificate.
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
		{name: "serving", action: corev1.GRPCAction{Port: good}, want: probe.Success, has: "service healthy"},
		{name: "serving, no name", action: corev1.GRPCAction{Port: good, Service: new("")}, want: probe.Success, has: "service healthy"},
		{name: "serving, by its name", action: corev1.GRPCAction{Port: good, Service: new("agent")}, want: probe.Success, has: "service healthy"},
		{name: "plaintext", action: corev1.GRPCAction{Port: good, Mode: &plain}, want: probe.Success, has: "service healthy"},
		{name: "tls", action: corev1.GRPCAction{Port: secure, Mode: &withTLS}, want: probe.Success, has: "service healthy"},
		{name: "tls to plaintext", action: corev1.GRPCAction{Port: good, Mode: &withTLS}, want: probe.Failure,
			has: "error: health rpc probe failed"},
		{name: "plaintext to tls", action: corev1.GRPCAction{Port: secure}, want: probe.Failure, has: "error: "},
		{name: "not serving", action: corev1.GRPCAction{Port: good, Service: new("ill")}, want: probe.Failure,
			has: `service unhealthy (responded with "NOT_SERVING")`},
		{name: "unknown", action: corev1.GRPCAction{Port: good, Service: new("odd")}, want: probe.Failure,
			has: `service unhealthy (responded with "UNKNOWN")`},
		{name: "no such service", action: corev1.GRPCAction{Port: good, Service: new("nobody")}, want: probe.Failure, has: "unknown service"},
		{name: "denied", action: corev1.GRPCAction{Port: good, Service: new("denied")}, want: probe.Failure, has: "not you"},
		{name: "slow", action: corev1.GRPCAction{Port: good, Service: new("slow")}, want: probe.Failure,
			has: "timeout: health rpc did not complete within 1s"},
		{name: "huge answer", action: corev1.GRPCAction{Port: good, Service: new("huge")}, want: probe.Failure,
			has: "error: health rpc probe failed"},
		{name: "no health service", action: corev1.GRPCAction{Port: empty}, want: probe.Failure,
			has: "this server does not implement the grpc health protocol (grpc.health.v1.Health)"},
		{name: "http", action: corev1.GRPCAction{Port: web}, want: probe.Failure, has: "error: "},
		{name: "closed", action: corev1.GRPCAction{Port: closed}, want: probe.Failure, has: "connection refused"},
		{name: "silent", action: corev1.GRPCAction{Port: quiet}, want: probe.Failure, has: "timeout: "},
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
