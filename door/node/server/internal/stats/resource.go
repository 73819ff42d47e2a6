package stats

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Register adds the paths to a server.
func (n *Node) Register(mux *http.ServeMux) {
	mux.HandleFunc("GET /stats/summary", func(w http.ResponseWriter, r *http.Request) {
		s, err := n.Summary(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(s) // plain data; the client may have disconnected
	})
	mux.HandleFunc("GET /metrics/resource", func(w http.ResponseWriter, r *http.Request) {
		s, err := n.Summary(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", text)
		resource(w, s)
	})
	mux.HandleFunc("GET /metrics/cadvisor", func(w http.ResponseWriter, r *http.Request) {
		var page bytes.Buffer
		if err := n.cadvisor(r.Context(), &page); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", text)
		_, _ = page.WriteTo(w) // the client may have disconnected
	})
}

// text is the content type of the Prometheus format.
const text = "text/plain; version=0.0.4; charset=utf-8"

// page writes metrics in the Prometheus format.
type page struct{ w io.Writer }

func (p page) head(name, kind, help string) {
	fmt.Fprintf(p.w, "# HELP %s [STABLE] %s\n# TYPE %s %s\n", name, help, name, kind)
}

// plain writes the head of a metric that is not stable.
func (p page) plain(name, kind, help string) {
	fmt.Fprintf(p.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// bare writes a value without a timestamp.
func (p page) bare(name, labels string, value float64) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(p.w, "%s%s %g\n", name, labels, value)
}

func (p page) figure(name, labels string, value float64, at metav1.Time) {
	if labels != "" {
		labels = "{" + labels + "}"
	}
	fmt.Fprintf(p.w, "%s%s %g %d\n", name, labels, value, at.UnixMilli())
}

// figures writes CPU or memory usage in the kubelet's units.
func (p page) figures(of, labels string, cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, kind string) {
	switch {
	case kind == "cpu" && cpu != nil:
		p.figure(of+"_cpu_usage_seconds_total", labels, float64(*cpu.UsageCoreNanoSeconds)/1e9, cpu.Time)
	case kind == "memory" && memory != nil:
		p.figure(of+"_memory_working_set_bytes", labels, float64(*memory.WorkingSetBytes), memory.Time)
	}
}

// resource writes the page of a kubelet's /metrics/resource. Names need no escaping, because the API restricts them.
func resource(w io.Writer, s *statsapi.Summary) {
	p := page{w}
	for _, kind := range []struct{ name, suffix, kind, help string }{
		{"cpu", "_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in core-seconds"},
		{"memory", "_memory_working_set_bytes", "gauge", "Current working set in bytes"},
	} {
		p.head("container"+kind.suffix, kind.kind, kind.help)
		for i := range s.Pods {
			ref := s.Pods[i].PodRef
			for _, c := range s.Pods[i].Containers {
				p.figures("container", fmt.Sprintf("container=%q,namespace=%q,pod=%q", c.Name, ref.Namespace, ref.Name), c.CPU, c.Memory, kind.name)
			}
		}
		p.head("pod"+kind.suffix, kind.kind, kind.help)
		for i := range s.Pods {
			ref := s.Pods[i].PodRef
			p.figures("pod", fmt.Sprintf("namespace=%q,pod=%q", ref.Namespace, ref.Name), s.Pods[i].CPU, s.Pods[i].Memory, kind.name)
		}
		p.head("node"+kind.suffix, kind.kind, kind.help)
		p.figures("node", "", s.Node.CPU, s.Node.Memory, kind.name)
	}
	p.head("resource_scrape_error", "gauge", "1 if there was an error while getting container metrics, 0 otherwise")
	fmt.Fprintln(w, "resource_scrape_error 0")
}
