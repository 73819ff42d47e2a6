package pod

import (
	"context"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// TestDialer: what the engine says becomes what a probe needs to know.
func TestDialer(t *testing.T) {
	t.Parallel()
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	for _, test := range []struct {
		name  string
		err   error
		text  string
		asked bool
	}{
		{"refused", &net.OpError{Op: "x", Err: syscall.ECONNREFUSED}, "dial tcp 10.0.2.15:80: connect: connection refused", true},
		{"timeout", context.DeadlineExceeded, "deadline exceeded", true},
		{"the guest says no", errors.New("no route"), "no route", true},
		{"no shim", status.Error(codes.Unavailable, "the shim is gone"), "the shim is gone", false},
		{"not running", status.Error(codes.FailedPrecondition, "stopped"), "stopped", false},
		{"no pod", status.Error(codes.NotFound, "no pod"), "no pod", false},
	} {
		dial := dialer(&Options{Dial: func(context.Context, string, int) (net.Conn, error) { return nil, test.err }}, "s1", "10.0.2.15")
		_, err := dial(t.Context(), 80)
		if err == nil || !strings.Contains(err.Error(), test.text) || errors.Is(err, probe.ErrNotAsked) == test.asked {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	dial := dialer(&Options{Dial: func(_ context.Context, sandbox string, port int) (net.Conn, error) {
		if sandbox != "s1" || port != 80 {
			t.Errorf("dialed port %d of %s", port, sandbox)
		}
		return near, nil
	}}, "s1", "10.0.2.15")
	if conn, err := dial(t.Context(), 80); conn != near || err != nil {
		t.Errorf("%v, %v", conn, err)
	}
	if _, err := dialer(&Options{}, "s1", "127.0.0.1")(t.Context(), 0); err == nil {
		t.Error("the pod's address was not dialed")
	}
}

// TestDialedProbe: probes of ports go by Options.Dial.
func TestDialedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := onePod("Always", "main")
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
		pod.Spec.Containers[0].ReadinessProbe = execProbe("", 1)
		pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}
		open := false
		s := supervise(t, fake, pod, func(o *Options) {
			o.Dial = func(_ context.Context, sandbox string, port int) (net.Conn, error) {
				fake.mu.Lock()
				defer fake.mu.Unlock()
				if !open || port != 8080 || !strings.HasPrefix(sandbox, "s") {
					return nil, syscall.ECONNREFUSED
				}
				near, far := net.Pipe()
				far.Close()
				return near, nil
			}
		})
		if got := healthOf(s.after(2 * time.Second).ContainerStatuses[0]); got != "running started" {
			t.Errorf("%s", got)
		}
		if told := s.told("Unhealthy"); len(told) == 0 || told[0] != "main: Readiness probe failed: dial tcp 10.0.2.15:8080: connect: connection refused" {
			t.Errorf("told %q", told)
		}
		fake.mu.Lock()
		open = true
		fake.mu.Unlock()
		if got := healthOf(s.after(time.Second).ContainerStatuses[0]); got != "running started ready" {
			t.Errorf("%s", got)
		}
	})
}
