package shim_test

import (
	"testing"
	"time"

	sandboxv1 "github.com/containerd/containerd/api/runtime/sandbox/v1"

	"github.com/bulkhead-project/bulkhead/shim"
)

// BenchmarkStart reports how long a shim takes to serve its API, and its memory while its VM boots.
func BenchmarkStart(b *testing.B) {
	var sum time.Duration
	for b.Loop() {
		o := options(b)
		began := time.Now()
		c, err := shim.Start(b.Context(), o)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Since(began)
		b.Log(weight(c.PID()))
		if _, err := c.Sandbox.ShutdownSandbox(b.Context(), &sandboxv1.ShutdownSandboxRequest{SandboxID: o.ID}); err != nil {
			b.Error(err)
		}
		c.Close()
		gone(b, "shim", c.PID())
	}
	b.ReportMetric(float64(sum.Microseconds())/1e3/float64(b.N), "served-ms")
}
