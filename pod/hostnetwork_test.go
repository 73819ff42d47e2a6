package pod

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/bulkhead-project/bulkhead/internal/test/testpod"
)

// TestHostNetworkAddress: a pod on the host's network has the host's address, which no runtime reports, in its status,
// environment and hosts file, and for its probes. It keeps the address after its end.
func TestHostNetworkAddress(t *testing.T) {
	var config net.ListenConfig
	listener, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	port := listener.Addr().(*net.TCPAddr).Port
	synctest.Test(t, func(t *testing.T) {
		fake := newFake()
		pod := testpod.New("Always", "main")
		pod.Spec.HostNetwork = true
		main := &pod.Spec.Containers[0]
		main.Env = []corev1.EnvVar{{Name: "IP", ValueFrom: &corev1.EnvVarSource{
			FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"},
		}}}
		main.ReadinessProbe = execProbe("", 1)
		main.ReadinessProbe.ProbeHandler = corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}}
		hosts := filepath.Join(t.TempDir(), "hosts")
		s := supervise(t, fake, pod, func(o *Options) { o.HostIP, o.HostsFile = "127.0.0.1", hosts })
		status := s.after(3 * time.Second)
		if status.PodIP != "127.0.0.1" || fmt.Sprint(status.PodIPs) != "[{127.0.0.1}]" {
			t.Errorf("addresses %q, %v", status.PodIP, status.PodIPs)
		}
		if got := healthOf(status.ContainerStatuses[0]); got != "running started ready" {
			t.Errorf("container is %s", got)
		}
		for _, c := range fake.containers {
			if len(c.config.Envs) != 1 || string(c.config.Envs[0].Value) != "127.0.0.1" {
				t.Errorf("environment %v", c.config.Envs)
			}
		}
		if text, err := os.ReadFile(hosts); err != nil || !strings.Contains(string(text), "127.0.0.1\tweb\n") {
			t.Errorf("hosts file %s, %v", text, err)
		}
		if err := s.Stop(t.Context(), time.Second); err != nil {
			t.Error(err)
		}
		if err := s.end(); err != nil || s.Status().PodIP != "127.0.0.1" {
			t.Errorf("at the end: %v, %q", err, s.Status().PodIP)
		}
	})
}
