package stats

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/bulkhead-project/bulkhead/door/node/usage"
)

// source has one pod with one container, or fails.
type source struct{ err error }

func (s source) usages(context.Context) (map[types.UID]usage.Pod, error) {
	cpu := &runtimeapi.CpuUsage{Timestamp: 5e9, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: 1500000000}}
	memory := &runtimeapi.MemoryUsage{Timestamp: 5e9, WorkingSetBytes: &runtimeapi.UInt64Value{Value: 4096}}
	return map[types.UID]usage.Pod{"u": {Logs: map[string]usage.Files{"c": {Bytes: 20, Inodes: 1}}, Volumes: []usage.Volume{
		{Name: "e", Ephemeral: true, Files: usage.Files{Bytes: 300, Inodes: 2}, Capacity: 1000, Available: 700},
		{Name: "d", Claim: "claim", Files: usage.Files{Bytes: 4000, Inodes: 5}, Capacity: 9000, Available: 5000, AllInodes: 50, InodesFree: 45},
	}, Stats: &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}},
		Linux: &runtimeapi.LinuxPodSandboxStats{
			Cpu: cpu, Memory: memory,
			Network: &runtimeapi.NetworkUsage{DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
				Name: "eth0", RxBytes: &runtimeapi.UInt64Value{Value: 7}, TxBytes: &runtimeapi.UInt64Value{Value: 8},
			}},
			Containers: []*runtimeapi.ContainerStats{{
				Attributes: &runtimeapi.ContainerAttributes{Id: "x", Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}, Cpu: cpu, Memory: memory,
				WritableLayer: &runtimeapi.FilesystemUsage{UsedBytes: &runtimeapi.UInt64Value{Value: 9}},
			}},
		},
	}}, "v": {Stats: &runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{}}}}, s.err
}

// statuses returns the status of the pod, which took three seconds to start.
func statuses() map[types.UID]corev1.PodStatus {
	began := metav1.NewTime(time.Unix(1000, 0))
	return map[types.UID]corev1.PodStatus{"u": {
		Phase: corev1.PodRunning, StartTime: &began,
		InitContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}}},
		ContainerStatuses: []corev1.ContainerStatus{{
			ContainerID: "bulkhead://x", Image: "i:1",
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Unix(1003, 0))}},
		}},
	}}
}

// TestFigures: each path reports the node, its pods and their containers. It fails if the runtime does not answer.
func TestFigures(t *testing.T) {
	t.Parallel()
	ask := func(s source, path string) (int, string) {
		mux := http.NewServeMux()
		(&Node{Name: "node", Dir: t.TempDir(), Source: s.usages, Statuses: statuses}).Register(mux)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		return w.Code, w.Body.String()
	}
	for path, words := range map[string][]string{
		"/stats/summary": {`"nodeName":"node"`, `"uid":"u"`, `"workingSetBytes":4096`, `"usageCoreNanoSeconds":1500000000`, `"capacityBytes":`},
		"/metrics/resource": {
			"container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} 1.5 5000\n",
			"pod_memory_working_set_bytes{namespace=\"n\",pod=\"p\"} 4096 5000\n", "node_cpu_usage_seconds_total ", "resource_scrape_error 0\n",
		},
		"/metrics/cadvisor": {
			"container_cpu_usage_seconds_total{cpu=\"total\",container=\"c\",id=\"/u/x\",image=\"i:1\",name=\"x\",namespace=\"n\",pod=\"p\"} 1.5\n",
			"container_memory_working_set_bytes{container=\"\",id=\"/u\",image=\"\",name=\"\",namespace=\"n\",pod=\"p\"} 4096\n",
			"container_fs_usage_bytes{container=\"c\",", "container_start_time_seconds{container=\"c\",",
			"container_network_receive_bytes_total{interface=\"eth0\",container=\"\",id=\"/u\",", "machine_cpu_cores ", "machine_memory_bytes ",
			"# TYPE container_network_transmit_bytes_total counter\n",
		},
	} {
		code, page := ask(source{}, path)
		for _, want := range words {
			if code != http.StatusOK || !strings.Contains(page, want) {
				t.Errorf("%s: %d, no %s in\n%s", path, code, want, page)
			}
		}
		if code, _ := ask(source{err: errors.New("gone")}, path); code != http.StatusInternalServerError {
			t.Errorf("%s of a runtime that does not answer: %d", path, code)
		}
	}
}

// TestFiles: a pod's ephemeral storage is the sum of its containers' layers, its logs and its emptyDirs on disk. The
// usage of each volume is reported too.
func TestFiles(t *testing.T) {
	t.Parallel()
	s, err := (&Node{Name: "node", Dir: t.TempDir(), Source: source{}.usages}).Summary(t.Context())
	if err != nil || len(s.Pods) != 2 {
		t.Fatalf("%v, %v", s, err)
	}
	p := s.Pods[1] // the pod without a name comes first
	text := func(f *statsapi.FsStats) string {
		if f == nil {
			return "nothing"
		}
		out := fmt.Sprint(*f.UsedBytes, " bytes of ", *f.CapacityBytes == *s.Node.Fs.CapacityBytes, ", ", *f.InodesUsed, " files")
		if f.InodesFree != nil {
			out += fmt.Sprint(" of ", *f.InodesFree == *s.Node.Fs.InodesFree)
		}
		return out
	}
	for _, tt := range []struct {
		name string
		of   *statsapi.FsStats
		want string
	}{
		{"the pod", p.EphemeralStorage, "329 bytes of true, 3 files of true"},
		{"its container's layer", p.Containers[0].Rootfs, "9 bytes of true, 0 files of true"},
		{"its logs", p.Containers[0].Logs, "20 bytes of true, 1 files of true"},
		{"an emptyDir", &p.VolumeStats[0].FsStats, "300 bytes of false, 2 files"},
		{"a claim", &p.VolumeStats[1].FsStats, "4000 bytes of false, 5 files of false"},
	} {
		if got := text(tt.of); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if of := p.VolumeStats[1].PVCRef; of == nil || of.Name != "claim" || of.Namespace != "n" || p.VolumeStats[0].PVCRef != nil {
		t.Errorf("PVCRef of the claim's volume: got %v, want n/claim, and none for the other volume", of)
	}
}
