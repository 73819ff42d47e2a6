package engine

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

func TestQuota(t *testing.T) {
	for _, tc := range []struct {
		name string
		size sizing.Size
		want int64
	}{
		{"no limit", sizing.Size{VCPUs: 1, Period: 100000}, 0},
		{"as many as the VM has", sizing.Size{VCPUs: 2, Quota: 200000, Period: 100000}, 0},
		{"half of one", sizing.Size{VCPUs: 1, Quota: 50000, Period: 100000}, 50000},
		{"three of four", sizing.Size{VCPUs: 4, Quota: 300000, Period: 100000}, 300000},
	} {
		if got := quota(tc.size); got != tc.want {
			t.Errorf("%s: %d, want %d", tc.name, got, tc.want)
		}
	}
}
