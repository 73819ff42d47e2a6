package vms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/door/containerd"
	"github.com/bulkhead-project/bulkhead/door/oci"
	"github.com/bulkhead-project/bulkhead/shim"
)

// TestClass: errors get the classes that clients match, and keep their texts.
func TestClass(t *testing.T) {
	unknown := errors.New("unknown")
	for _, test := range []struct{ err, want error }{
		{oci.ErrNotRunning, containerd.ErrNotRunning},
		{fmt.Errorf("container c: %w", oci.ErrNotExist), containerd.ErrNotFound},
		{oci.ErrExists, containerd.ErrExists},
		{shim.ErrNotRunning, containerd.ErrUnavailable},
		{fmt.Errorf("call: %w", ttrpc.ErrClosed), containerd.ErrUnavailable},
		{fmt.Errorf("call: %w", status.Error(codes.InvalidArgument, "bad")), containerd.ErrInvalid},
		{status.Error(codes.Unimplemented, "no"), containerd.ErrUnsupported},
		{context.Canceled, context.Canceled},
		{unknown, unknown},
	} {
		if got := class(test.err); !errors.Is(got, test.want) || !errors.Is(got, test.err) || got.Error() != test.err.Error() {
			t.Errorf("class(%v): got %v, want %v", test.err, got, test.want)
		}
	}
	if class(nil) != nil {
		t.Error("class(nil) is an error")
	}
}

func TestMetrics(t *testing.T) {
	m := metrics(&agentv1.Stats{CPUUsec: 7, MemoryBytes: 100, WorkingSet: 60, RSS: 40, Pids: 3, PageFaults: 9})
	if m.CPU.UsageUsec != 7 || m.Memory.Usage != 100 || m.Memory.InactiveFile != 40 || m.Memory.Anon != 40 ||
		m.Pids.Current != 3 || m.Memory.Pgfault != 9 {
		t.Errorf("got %v", m)
	}
	if m := metrics(&agentv1.Stats{MemoryBytes: 1, WorkingSet: 2}); m.Memory.InactiveFile != 0 {
		t.Errorf("a working set above the usage: got %v", m)
	}
	for reported, want := range map[uint64]uint64{0: math.MaxUint64, 5: 5} { // clients subtract the usage from it
		if m := metrics(&agentv1.Stats{MemoryLimit: reported}); m.Memory.UsageLimit != want {
			t.Errorf("the limit %d: got %d, want %d", reported, m.Memory.UsageLimit, want)
		}
	}
}
