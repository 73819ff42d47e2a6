package stats

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// source has one pod of one container, or fails.
type source struct{ err error }

func (s source) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	cpu := &runtimeapi.CpuUsage{Timestamp: 5e9, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: 1500000000}}
	memory := &runtimeapi.MemoryUsage{Timestamp: 5e9, WorkingSetBytes: &runtimeapi.UInt64Value{Value: 4096}}
	return []*runtimeapi.PodSandboxStats{{
		Attributes: &runtimeapi.PodSandboxAttributes{Metadata: &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}},
		Linux: &runtimeapi.LinuxPodSandboxStats{Cpu: cpu, Memory: memory, Containers: []*runtimeapi.ContainerStats{{
			Attributes: &runtimeapi.ContainerAttributes{Metadata: &runtimeapi.ContainerMetadata{Name: "c"}}, Cpu: cpu, Memory: memory,
		}}},
	}, {Attributes: &runtimeapi.PodSandboxAttributes{}}}, s.err
}

// TestFigures: each path tells of the node, its pods and their containers; a runtime that does not answer is told.
func TestFigures(t *testing.T) {
	t.Parallel()
	ask := func(s source, path string) (int, string) {
		mux := http.NewServeMux()
		(&Node{Name: "node", Dir: t.TempDir(), Source: s}).Register(mux)
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
