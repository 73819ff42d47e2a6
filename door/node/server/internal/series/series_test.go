package series

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bulkhead-project/bulkhead/door/node/usage"
	"github.com/bulkhead-project/bulkhead/pod"
	"github.com/bulkhead-project/bulkhead/pod/probe"
)

// page returns the response of a path.
func page(t *testing.T, s *Series, path string) string {
	t.Helper()
	mux := http.NewServeMux()
	s.Register(mux)
	w := httptest.NewRecorder()
	s.Count(mux).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
	if w.Code != http.StatusOK {
		t.Errorf("%s: %d", path, w.Code)
	}
	return w.Body.String()
}

// expectLines checks that a page has these lines, and no line that starts with one of lacks.
func expectLines(t *testing.T, page string, lines, lacks []string) {
	t.Helper()
	for _, want := range lines {
		if !strings.Contains("\n"+page, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, page)
		}
	}
	for _, not := range lacks {
		if strings.Contains("\n"+page, "\n"+not) {
			t.Errorf("there is %s in\n%s", not, page)
		}
	}
}

func newPod(name string, uid types.UID) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: uid, CreationTimestamp: metav1.Now()},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
	}
}

// none returns the statuses of a node without pods.
func none() map[types.UID]corev1.PodStatus { return nil }

func noClaims() map[types.NamespacedName]usage.Volume { return nil }

// running returns the status of a pod of two containers, n of them running.
func running(n int) func() corev1.PodStatus {
	s := corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: make([]corev1.ContainerStatus, 2)}
	for i := range s.ContainerStatuses {
		if i < n {
			s.ContainerStatuses[i].State.Running = &corev1.ContainerStateRunning{}
		} else {
			s.ContainerStatuses[i].State.Waiting = &corev1.ContainerStateWaiting{}
		}
	}
	if n == 0 {
		s.Phase = corev1.PodPending
	}
	return func() corev1.PodStatus { return s }
}

// certificate expires at a fixed time.
type certificate struct{ at time.Time }

func (c certificate) Expires() time.Time  { return c.at }
func (certificate) RenewFailures() uint64 { return 3 }

// TestNode: a node's metrics have the kubelet's names, and the runtime's metrics are included.
func TestNode(t *testing.T) {
	t.Parallel()
	more := prometheus.NewRegistry()
	more.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "bulkhead_something"}))
	synctest.Test(t, func(t *testing.T) {
		mine := certificate{time.Now().Add(time.Hour)}
		s := New(Options{Node: "node", More: more, Client: mine, Statuses: func() map[types.UID]corev1.PodStatus {
			exited := corev1.ContainerStatus{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}
			p := running(1)()
			p.InitContainerStatuses = []corev1.ContainerStatus{exited}
			return map[types.UID]corev1.PodStatus{"u": p, "v": {Phase: corev1.PodFailed}}
		}, Claims: func() map[types.NamespacedName]usage.Volume {
			v := usage.Volume{Files: usage.Files{Bytes: 3, Inodes: 6}, Capacity: 1, Available: 2, AllInodes: 4, InodesFree: 5}
			return map[types.NamespacedName]usage.Volume{{Namespace: "n", Name: "c"}: v}
		}})
		s.Evicted("memory.available")
		expectLines(t, page(t, s, "/metrics"), []string{
			`kubelet_node_name{node="node"} 1`, "kubelet_running_pods 1", `kubelet_running_containers{container_state="running"} 1`,
			`kubelet_running_containers{container_state="exited"} 1`, `kubelet_running_containers{container_state="created"} 0`,
			`kubelet_evictions{eviction_signal="memory.available"} 1`, "kubelet_certificate_manager_client_ttl_seconds 3600",
			"kubelet_certificate_manager_client_expiration_renew_errors 3", "kubelet_certificate_manager_server_ttl_seconds +Inf",
			"kubelet_server_expiration_renew_errors 0", "bulkhead_something 0",
			`kubelet_volume_stats_capacity_bytes{namespace="n",persistentvolumeclaim="c"} 1`,
			`kubelet_volume_stats_available_bytes{namespace="n",persistentvolumeclaim="c"} 2`,
			`kubelet_volume_stats_used_bytes{namespace="n",persistentvolumeclaim="c"} 3`,
			`kubelet_volume_stats_inodes{namespace="n",persistentvolumeclaim="c"} 4`,
			`kubelet_volume_stats_inodes_free{namespace="n",persistentvolumeclaim="c"} 5`,
			`kubelet_volume_stats_inodes_used{namespace="n",persistentvolumeclaim="c"} 6`,
		}, []string{"go_goroutines"})
		expectLines(t, page(t, New(Options{Statuses: none, Claims: noClaims}), "/metrics"),
			[]string{"kubelet_running_pods 0"}, []string{"bulkhead"})
	})
	if text := page(t, New(Options{Statuses: none, Claims: noClaims}), "/metrics"); !strings.Contains(text, "\ngo_goroutines ") {
		t.Error("without More, the metrics of this process are missing")
	}
}

// TestProbes: each probe is counted and, unless it failed, timed. Series of ended and removed pods are dropped.
func TestProbes(t *testing.T) {
	t.Parallel()
	s := New(Options{Statuses: none, Claims: noClaims})
	old, other := newPod("p", "u-1"), newPod("p", "u-2")
	for _, result := range []probe.Result{probe.Success, probe.Warning, probe.Failure, probe.Unknown} {
		s.Probed(old, "c", probe.Liveness, result, 20*time.Millisecond)
	}
	s.Probed(other, "c", probe.Readiness, probe.Failure, time.Second)
	of := func(kind, result, uid string) string {
		return fmt.Sprintf(`prober_probe_total{container="c",namespace="n",pod="p",pod_uid=%q,probe_type=%q,result=%q}`, uid, kind, result)
	}
	const took = `prober_probe_duration_seconds_count{container="c",namespace="n",pod="p",probe_type="Liveness"}`
	expectLines(t, page(t, s, "/metrics/probes"), []string{
		of("Liveness", "successful", "u-1") + " 2", of("Liveness", "failed", "u-1") + " 1", of("Liveness", "unknown", "u-1") + " 1",
		of("Readiness", "failed", "u-2") + " 1", took + " 3",
	}, nil)
	s.Removed("u-1")
	s.Removed("u-1")
	expectLines(t, page(t, s, "/metrics/probes"), []string{of("Readiness", "failed", "u-2") + " 1"},
		[]string{of("Liveness", "successful", "u-1")})
	s.Probed(other, "c", probe.Liveness, probe.Success, time.Second)
	s.Changed(other, func() corev1.PodStatus { return corev1.PodStatus{Phase: corev1.PodSucceeded} })
	if text := page(t, s, "/metrics/probes"); strings.Contains(text, "prober") {
		t.Errorf("metrics of probes of ended pods: got %s, want none", text)
	}
	for i := range mostSeries + 5 {
		s.Probed(newPod("p", types.UID(fmt.Sprint(i/10))), fmt.Sprint("c", i%10), probe.Liveness, probe.Failure, 0)
	}
	if n := strings.Count(page(t, s, "/metrics/probes"), "\nprober_probe_total{"); n != mostSeries {
		t.Errorf("there are %d series", n)
	}
	s.Removed("0")
	s.Probed(other, "c", probe.Liveness, probe.Failure, 0)
	expectLines(t, page(t, s, "/metrics/probes"), []string{of("Liveness", "failed", "u-2") + " 1"}, nil)
}

// TestStarts: a pod's start is timed once, from its first sighting, and from its creation without the image pulls. A
// taken-over pod is not timed.
func TestStarts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Statuses: none, Claims: noClaims})
		p, failed, taken, initial := newPod("p", "u"), newPod("f", "f"), newPod("t", "t"), newPod("i", "i")
		initial.Spec.InitContainers = []corev1.Container{{Name: "i"}}
		time.Sleep(time.Second)
		for range 2 {
			s.Seen(p)
			s.Seen(failed)
			s.Seen(initial)
			time.Sleep(time.Second)
		}
		for _, reason := range []string{"Pulling", "Pulled", "Pulling", "Pulled"} {
			s.Event(p, pod.Event{Time: time.Now(), Reason: reason})
			time.Sleep(2 * time.Second)
		}
		s.Event(taken, pod.Event{Reason: "Pulling"})
		for _, status := range []func() corev1.PodStatus{running(0), running(1), running(2), running(2)} {
			s.Changed(p, status)
			s.Changed(taken, status)
			s.Changed(initial, status)
			time.Sleep(time.Second)
		}
		s.Changed(failed, func() corev1.PodStatus { return corev1.PodStatus{Phase: corev1.PodFailed} })
		expectLines(t, page(t, s, "/metrics"), []string{
			"kubelet_pod_start_duration_seconds_count 2", "kubelet_pod_start_duration_seconds_sum 22", // 11 each
			"kubelet_pod_start_sli_duration_seconds_count 1", "kubelet_pod_start_sli_duration_seconds_sum 7", // 13 minus 6
		}, nil)
		if len(s.starts.begun) != 0 {
			t.Errorf("it waits for %v", s.starts.begun)
		}
		s.Seen(p)
		s.Removed(p.UID)
		if len(s.starts.begun) != 0 {
			t.Errorf("it waits for a removed pod: %v", s.starts.begun)
		}
	})
}

// TestRequests: requests are counted by the start of their path. Made-up paths share one label.
func TestRequests(t *testing.T) {
	t.Parallel()
	s := New(Options{Statuses: none, Claims: noClaims})
	handler := s.Count(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/pods" {
			expectLines(t, page(t, s, "/metrics"), []string{
				`kubelet_http_inflight_requests{long_running="false",method="GET",path="pods",server_type="readwrite"} 1`,
			}, nil)
		}
	}))
	for _, request := range []struct{ method, path string }{
		{"GET", "/pods"}, {"POST", "/exec/n/p/c"}, {"GET", "/containerLogs/n/p/c"}, {"GET", "/metrics/cadvisor"}, {"GET", "/metrics/made/up"},
		{"MADEUP", "/made/up"}, {"GET", "/"},
	} {
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), request.method, request.path, http.NoBody))
	}
	of := func(method, path, long string) string {
		return fmt.Sprintf(`kubelet_http_requests_total{long_running=%q,method=%q,path=%q,server_type="readwrite"}`, long, method, path)
	}
	expectLines(t, page(t, s, "/metrics"), []string{
		of("GET", "pods", "false") + " 1", of("POST", "exec", "true") + " 1", of("GET", "containerLogs", "false") + " 1",
		of("GET", "metrics/cadvisor", "false") + " 1", of("GET", "other", "false") + " 2", of("other", "other", "false") + " 1",
		of("GET", "metrics", "false") + " 2",
		`kubelet_http_requests_duration_seconds_count{long_running="true",method="POST",path="exec",server_type="readwrite"} 1`,
	}, nil)
}
