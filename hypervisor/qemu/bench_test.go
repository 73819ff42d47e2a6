package qemu_test

import (
	"context"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/internal/test/hypervisortest"
)

// BenchmarkClone reports the phases of a clone's start, until its guest's first answer.
func BenchmarkClone(b *testing.B) {
	d := driver(b)
	s := hypervisortest.Save(b, d, hypervisortest.VMConfig(b), func(v hypervisor.VM) { hypervisortest.Ask(b, v, "echo warm") })
	sum := map[string]time.Duration{}
	for b.Loop() {
		began := time.Now()
		v := s.Clone(b, d)
		ready := time.Now()
		sum["clone"] += ready.Sub(began)
		hypervisortest.Ask(b, v, "echo x")
		sum["answer"] += time.Since(ready)
		for _, timing := range v.Timings() {
			sum[timing.Phase] += timing.Took
		}
		v.Kill(context.Background())
	}
	for phase, took := range sum {
		b.ReportMetric(float64(took.Microseconds())/1e3/float64(b.N), phase+"-ms")
	}
}

// BenchmarkGrow reports the time to add 512 MiB, and to remove them.
func BenchmarkGrow(b *testing.B) {
	d := driver(b)
	s := hypervisortest.Save(b, d, hypervisortest.VMConfig(b), func(v hypervisor.VM) { hypervisortest.Ask(b, v, "echo warm") })
	v := s.Clone(b, d)
	var sum [2]time.Duration
	for b.Loop() {
		for i, size := range []int{640, 128} {
			began := time.Now()
			if _, err := v.Grow(b.Context(), size); err != nil {
				b.Fatal(err)
			}
			sum[i] += time.Since(began)
		}
	}
	b.ReportMetric(float64(sum[0].Milliseconds())/float64(b.N), "grow-ms")
	b.ReportMetric(float64(sum[1].Milliseconds())/float64(b.N), "shrink-ms")
}
