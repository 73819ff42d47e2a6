package engine

import (
	"testing"

	"github.com/bulkhead-project/bulkhead/sandbox/sizing"
)

// TestNamesPod checks that only the shim and the VM of the pod are recognised.
func TestNamesPod(t *testing.T) {
	id := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		args []string
		want bool
	}{
		{[]string{"bulkhead-shim", "default", id}, true},
		{[]string{"/usr/bin/qemu", "-name", "bulkhead-bulkhead-0123456789ab", "-nodefaults"}, true},
		{[]string{"bulkhead-shim", "default", "f" + id[1:]}, false},
		{[]string{"bulkhead", "rm", id}, false},
		{[]string{"crictl", "rmp", id}, false},
		{[]string{"/usr/bin/qemu", "-name", "bulkhead-template-0123456789ab"}, false},
		{[]string{"/usr/bin/qemu", "-name"}, false},
		{[]string{"bulkhead-shim", "default"}, false},
		{[]string{"bulkhead-bulkhead-0123456789ab", "-nodefaults"}, false},
		{nil, false},
	} {
		if got := namesPod(test.args, id); got != test.want {
			t.Errorf("%q: %v", test.args, got)
		}
	}
}

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
