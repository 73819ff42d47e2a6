package pod

import (
	"context"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

// TestDialedProbe: probes of ports use Options.Dial.
func TestDialedProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Always", "main")
		pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{Name: "web", ContainerPort: 8080}}
		pod.Spec.Containers[0].ReadinessProbe = execProbe("", 1)
		pod.Spec.Containers[0].ReadinessProbe.ProbeHandler = corev1.ProbeHandler{
			TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")},
		}
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
		if got := s.messages("Unhealthy"); len(got) == 0 ||
			got[0] != "main: Readiness probe failed: dial tcp 10.0.2.15:8080: connect: connection refused" {
			t.Errorf("events %q", got)
		}
		fake.mu.Lock()
		open = true
		fake.mu.Unlock()
		if got := healthOf(s.after(time.Second).ContainerStatuses[0]); got != "running started ready" {
			t.Errorf("%s", got)
		}
	})
}
